// Events of a manager: Events, a cursor over its log; Event, Snapshot, and ResidencyView, which follows them.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/events/event.h"
#include "cairn/events/event_log.h"
#include "cairn/events/residency_view.h"
#include "python/src/keys.h"
#include "python/src/managers.h"
#include "python/src/wakeups.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

EventLog& log_of(const ManagerOwner& owner) {
  EventLog* const log = owner.manager.events();
  if (log == nullptr) {
    raise(ErrorCode::kFailedPrecondition, "the manager keeps no events; set event_log to how many it should keep");
  }
  return *log;
}

// Event loops that await news of a log.
class NewsWaker final : public EventWaker {
 public:
  // On a thread of Cairn, under its locks; or on any other.
  void wake() override {
    const std::scoped_lock lock(mutex_);
    watchers_.wake();
  }
  void add(const WakeupsHandle& wakeups, std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    watchers_.add(wakeups.wakeups, number);
  }
  void remove(const WakeupsHandle& wakeups, std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    watchers_.remove(wakeups.wakeups, number);
  }

 private:
  std::mutex mutex_;  // no cairn::Mutex: taken under the log's, and no other is taken under it but that of Wakeups
  Watchers watchers_;
};

// cairn._cairn._EventCursor: cairn/_events.py makes iterators of it. Ends with its manager, and does not keep it alive.
class EventCursor final : public CloseListener {
 public:
  EventCursor(nb::object manager, EventSubscriber subscriber) : manager_(std::move(manager)), subscriber_(subscriber) {}
  EventCursor(EventCursor&&) = default;  // before anybody waits
  EventCursor& operator=(EventCursor&&) = delete;
  ~EventCursor() override {
    if (manager_.is_valid() && waker_.is_of_this_process() && !manager().is_closed()) {
      manager().remove(*this);
      log_of(*manager().use()).forget(waker_.get());
    }
  }

  // The next events; std::nullopt if some were lost.
  [[nodiscard]] std::optional<std::vector<Event>> poll(std::size_t max_blocks) {
    const ManagerPtr owner = manager().use();
    EventBatch batch = subscriber_.poll(max_blocks);
    auto* const events = std::get_if<std::vector<Event>>(&batch);
    return events == nullptr ? std::nullopt : std::optional(std::move(*events));
  }
  void resume_at(std::uint64_t next) {
    const ManagerPtr owner = manager().use();
    check(subscriber_.resume_at(next));
  }
  [[nodiscard]] std::uint64_t next_sequence() const { return subscriber_.next_sequence(); }

  // Posts `number` when poll() may have something new, or the manager is closed. False if it has something new already.
  [[nodiscard]] bool watch(const WakeupsHandle& wakeups, std::uint64_t number) {
    const ManagerPtr owner = manager().use();
    NewsWaker& waker = waker_.get();
    waker.add(wakeups, number);
    manager().add(*this);
    if (!log_of(*owner).wake_after(subscriber_.next_sequence() - 1, waker)) {
      waker.remove(wakeups, number);
      return false;
    }
    return true;
  }
  void unwatch(const WakeupsHandle& wakeups, std::uint64_t number) const { waker_.get().remove(wakeups, number); }
  void on_close(const ManagerOwner& owner) override {
    log_of(owner).forget(waker_.get());
    waker_.get().wake();
  }

 private:
  [[nodiscard]] Manager& manager() const { return nb::cast<Manager&>(manager_); }

  nb::object manager_;
  EventSubscriber subscriber_;  // used only while the manager is open
  OfProcess<NewsWaker> waker_;
};

// cairn.ResidencyView. The mutex is only locked by threads that need no GIL until they unlock it.
class View {
 public:
  // Calls `act` with the view while no other thread has it; without the GIL if it takes long.
  template <typename Act>
  auto with(bool takes_long, Act act) {
    const ReleaseGilIf gil(takes_long);
    const std::scoped_lock lock(mutex_);
    return act(view_);
  }

 private:
  std::mutex mutex_;
  ResidencyView view_;
};

EventCursor make_cursor(nb::object manager, std::optional<std::uint64_t> since) {
  const ManagerPtr owner = nb::cast<const Manager&>(manager).use();
  const EventLog& log = log_of(*owner);
  return {std::move(manager),
          since ? value_or_raise(EventSubscriber::resuming(log, *since)) : EventSubscriber::joining(log)};
}

Snapshot snapshot_of(const Manager& manager) {
  const ManagerPtr owner = manager.use();
  const EventLog& log = log_of(*owner);
  std::vector<const ResidentSource*> pools;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
    if (const BlockPool* const pool = owner->manager.pool(level)) {
      pools.push_back(pool);
    }
  }
  Result<Snapshot> taken = [&] {
    const GilRelease released;
    return take_snapshot(log, pools);
  }();
  return value_or_raise(std::move(taken));
}

const char* kind_of(const Event& event) {
  constexpr const char* kKinds[] = {"stored", "removed", "cleared", "invalidated", "suspended", "resumed"};
  return kKinds[event.data.index()];
}

// Of stored and removed blocks; empty for other events.
Keys keys_of(const Event& event) {
  std::vector<BlockKey> keys;
  if (const auto* const stored = std::get_if<Stored>(&event.data)) {
    for (const StoredBlock& block : stored->blocks) {
      keys.push_back(block.key);
    }
  } else if (const auto* const removed = std::get_if<Removed>(&event.data)) {
    keys = removed->keys;
  }
  return Keys(std::move(keys));
}

const Stored* stored_of(const Event& event) { return std::get_if<Stored>(&event.data); }

const TierSnapshot* tier_of(const Snapshot& snapshot, std::string_view tier) {
  const CacheLevel level = level_of(tier);
  for (const TierSnapshot& each : snapshot.tiers) {
    if (each.tier == level) {
      return &each;
    }
  }
  return nullptr;
}

Keys keys_of(const std::vector<ResidentBlock>& blocks) {
  std::vector<BlockKey> keys;
  keys.reserve(blocks.size());
  for (const ResidentBlock& block : blocks) {
    keys.push_back(block.key);
  }
  return Keys(std::move(keys));
}

}  // namespace

void bind_events(nb::module_& module) {
  nb::class_<Event>(module, "Event", R"(One change of what a tier has cached. `kind` says which attributes it has:

stored: keys, parent_hash, tokens_hashes, token_ids; removed: keys; cleared; invalidated: weights_generation; suspended;
resumed. docs/events.md explains them.)")
      .def_ro("sequence", &Event::sequence, "1, 2, 3 and so on without gaps, for all tiers together.")
      .def_prop_ro("tier", [](const Event& self) { return to_string(self.tier); })
      .def_prop_ro("kind", &kind_of)
      .def_prop_ro(
          "keys", [](const Event& self) { return keys_of(self); }, "Of stored and removed blocks.")
      .def_prop_ro(
          "parent_hash",
          [](const Event& self) -> std::optional<std::uint64_t> {
            const Stored* const stored = stored_of(self);
            return stored != nullptr && stored->parent ? std::optional(value_of(*stored->parent)) : std::nullopt;
          },
          "The sequence hash of the block before the first stored one; None at position 0.")
      .def_prop_ro("tokens_hashes",
                   [](const Event& self) {
                     std::vector<std::uint64_t> hashes;
                     if (const Stored* const stored = stored_of(self)) {
                       for (const StoredBlock& block : stored->blocks) {
                         hashes.push_back(value_of(block.tokens_hash));
                       }
                     }
                     return hashes;
                   })
      .def_prop_ro(
          "token_ids",
          [](const Event& self) {
            return stored_of(self) != nullptr ? stored_of(self)->token_ids : std::vector<Token>();
          },
          "Of all stored blocks; empty unless event_token_ids is on.")
      .def_prop_ro("weights_generation",
                   [](const Event& self) -> std::optional<std::uint64_t> {
                     const auto* const data = std::get_if<Invalidated>(&self.data);
                     return data != nullptr ? std::optional(data->weights_generation) : std::nullopt;
                   })
      .def_prop_ro("worker_id", [](const Event& self) { return self.source.worker_id; })
      .def_prop_ro("dp_rank", [](const Event& self) { return self.source.dp_rank; })
      .def(
          "to_json",
          [](const Event& self) {
            std::string line;
            append_json_line(self, line);
            line.pop_back();
            return line;
          },
          "The event as one line of JSON, in the form that routers of Dynamo read.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object) -> bool"))
      .def("__repr__", [](const Event& self) {
        const std::size_t blocks = keys_of(self).get().size();
        return str_cat("<cairn.Event ", self.sequence, " ", kind_of(self), " ", name_of(self.tier),
                       blocks == 0 ? "" : str_cat(" ", blocks, " blocks"), ">");
      });

  nb::class_<Snapshot>(module, "Snapshot", "All blocks that the tiers have, after event `sequence`.")
      .def_ro("sequence", &Snapshot::sequence, "Continue with the event after this one.")
      .def_prop_ro("tiers",
                   [](const Snapshot& self) {
                     std::vector<std::string> names;
                     for (const TierSnapshot& tier : self.tiers) {
                       names.emplace_back(to_string(tier.tier));
                     }
                     return names;
                   })
      .def(
          "keys",
          [](const Snapshot& self, std::string_view tier) {
            const TierSnapshot* const found = tier_of(self, tier);
            return keys_of(found != nullptr ? found->blocks : std::vector<ResidentBlock>());
          },
          "tier"_a, "Of the blocks of a tier, sorted: parents come first.")
      .def(
          "is_suspended",
          [](const Snapshot& self, std::string_view tier) {
            const TierSnapshot* const found = tier_of(self, tier);
            return found != nullptr && found->suspended;
          },
          "tier"_a)
      .def("__repr__", [](const Snapshot& self) {
        std::string text = str_cat("<cairn.Snapshot after event ", self.sequence);
        for (const TierSnapshot& tier : self.tiers) {
          text += str_cat(", ", name_of(tier.tier), " ", tier.blocks.size(), " blocks");
        }
        return text + ">";
      });

  nb::class_<View>(module, "ResidencyView", R"(What a follower of events knows to be cached in the tiers of one worker.

    view = cairn.ResidencyView()
    for change in manager.events():    # a snapshot, then events
        view.apply(change)

Questions about blocks ask where they can be loaded from, so a suspended tier does not count.)")
      .def(nb::init<>())
      .def(
          "apply",
          [](View& self, const Snapshot& snapshot) {
            check(self.with(true, [&](ResidencyView& view) { return view.apply(snapshot); }));
          },
          "change"_a, "Replaces everything by a snapshot, or applies the next event.")
      .def(
          "apply",
          [](View& self, const Event& event) {
            check(self.with(false, [&](ResidencyView& view) { return view.apply(event); }));
          },
          "change"_a)
      .def_prop_ro(
          "sequence", [](View& self) { return self.with(false, [](ResidencyView& view) { return view.sequence(); }); },
          "The number of the last event that was applied, or that the snapshot includes.")
      .def(
          "match_prefix",
          [](View& self, const KeysArgument& keys) {
            const auto match = self.with(keys.size() >= kManyBlocks,
                                         [&](ResidencyView& view) { return view.match_prefix(keys.get()); });
            nb::dict all;
            all["blocks"] = match.blocks;
            for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
              all[name_of(level)] = match.by_tier[index_of(level)];
            }
            return as_record(all);
          },
          "keys"_a,
          nb::sig("def match_prefix(self, keys: Keys | collections.abc.Sequence[Key]) -> cairn._record.Record"),
          "How many keys, from the first on, can be loaded (`blocks`), and by nearest tier (`device`, `host`, `disk`).")
      .def(
          "tiers_holding",
          [](View& self, const BlockKey& key) {
            const auto holding = self.with(false, [&](ResidencyView& view) { return view.tiers_holding(key); });
            std::vector<std::string> names;
            for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
              if (holding[index_of(level)]) {
                names.emplace_back(to_string(level));
              }
            }
            return names;
          },
          "key"_a, "The tiers that the block can be loaded from.")
      .def(
          "is_suspended",
          [](View& self, std::string_view tier) {
            const CacheLevel level = level_of(tier);
            return self.with(false, [&](ResidencyView& view) { return view.is_suspended(level); });
          },
          "tier"_a)
      .def(
          "size",
          [](View& self, std::string_view tier) {
            const CacheLevel level = level_of(tier);
            return self.with(false, [&](ResidencyView& view) { return view.size(level); });
          },
          "tier"_a, "How many blocks the tier has, suspended or not.")
      .def(
          "keys",
          [](View& self, std::string_view tier) {
            const CacheLevel level = level_of(tier);
            return keys_of(self.with(true, [&](ResidencyView& view) { return view.sorted_blocks(level); }));
          },
          "tier"_a, "The keys of the tier's blocks, sorted.")
      .def("__len__", [](View& self) { return self.with(false, [](ResidencyView& view) { return view.size(); }); })
      .def("__repr__", [](View& self) {
        return self.with(false, [](ResidencyView& view) {
          return str_cat("<cairn.ResidencyView after event ", view.sequence(), ": ", view.size(), " blocks>");
        });
      });

  nb::class_<EventCursor>(module, "_EventCursor")
      .def("poll", &EventCursor::poll, "max_blocks"_a)
      .def("resume_at", &EventCursor::resume_at, "next"_a)
      .def("_watch", &EventCursor::watch, "wakeups"_a, "number"_a)
      .def("_unwatch", &EventCursor::unwatch, "wakeups"_a, "number"_a)
      .def_prop_ro("next_sequence", &EventCursor::next_sequence);

  auto manager = nb::borrow<nb::class_<Manager>>(module.attr("Manager"));
  manager.def("_event_cursor", &make_cursor, "since"_a.none());
  manager.def("snapshot", &snapshot_of, "All blocks that the tiers have, and after which event.");
  manager.def(
      "events",
      [](nb::handle self, nb::handle since) {
        return nb::module_::import_("cairn._events").attr("Events")(self, since);
      },
      "since"_a = nb::none(), nb::sig("def events(self, since: int | None = None) -> cairn._events.Events"),
      "A cursor over the changes of what is cached: an iterator and an async iterator of events. Begins with a "
      "snapshot, or "
      "with event `since`; if events were lost, a snapshot comes in their place.");
}

}  // namespace cairn::python
