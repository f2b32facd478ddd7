// Copies that a manager makes on request: Load, Onboard, Prefetch and Offload, which a caller waits for, polls or awaits.
//
// Threads of Cairn end a copy and never take the GIL: they store the outcome, wake threads that wait, and post a number to the
// eventfd of each event loop that awaits the copy (cairn/_wakeups.py).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "python/src/duration.h"
#include "python/src/keys.h"
#include "python/src/managers.h"
#include "python/src/wakeups.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

// The outcome of a copy, shared with the callback of its request.
template <typename Outcome>
class Ending {
 public:
  // On a thread of Cairn.
  void end(Result<Outcome>&& outcome) {
    const std::scoped_lock lock(mutex_);
    outcome_.emplace(std::move(outcome));
    watchers_.wake();
    ended_.notify_all();
  }
  [[nodiscard]] bool is_over() const {
    const std::scoped_lock lock(mutex_);
    return outcome_.has_value();
  }
  // Returns whether the copy has ended.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds longest) const {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, longest, [this] { return outcome_.has_value(); });
  }
  // Posts `number` when the copy ends. False if it has ended.
  [[nodiscard]] bool watch(WakeupsPtr wakeups, std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    if (outcome_) {
      return false;
    }
    watchers_.add(std::move(wakeups), number);
    return true;
  }
  void unwatch(const WakeupsPtr& wakeups, std::uint64_t number) {
    const std::scoped_lock lock(mutex_);
    watchers_.remove(wakeups, number);
  }
  // Requires: it has ended. Call it once.
  [[nodiscard]] Result<Outcome> take() { return *std::move(outcome_); }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<Result<Outcome>> outcome_;
  Watchers watchers_;
};

struct LoadedBlocks {
  nb::object blocks;
  LoadOutcome outcome;  // without the blocks
};

nb::object python_of(const ManagerPtr& owner, ImmutableBlocks&& blocks) {
  BlockPool* const pool = owner->manager.pool(blocks.tier().value_or(CacheLevel::kG1));
  return nb::cast(BlocksHandle<ImmutableBlocks>(PoolRef{owner, pool}, std::move(blocks)));
}
nb::object python_of(const ManagerPtr& owner, LoadOutcome&& outcome) {
  nb::object blocks = python_of(owner, std::move(outcome.blocks));
  return nb::cast(LoadedBlocks{std::move(blocks), std::move(outcome)});
}
nb::object python_of(const ManagerPtr&, std::uint32_t&& count) { return nb::cast(count); }
nb::object python_of(const ManagerPtr&, OffloadOutcome&& outcome) { return nb::cast(std::move(outcome)); }

// A copy as Python sees it: cairn.Load and so on.
template <typename Outcome>
class Copy {
 public:
  using Cancel = std::function<void(const KvBlockManager&)>;
  Copy(ManagerPtr owner, std::shared_ptr<Ending<Outcome>> ending, Cancel cancel)
      : state_(State{std::move(owner), std::move(ending), std::move(cancel)}) {}

  [[nodiscard]] bool done() const { return result_.is_valid() || error_ || state_.get().ending->is_over(); }
  void cancel() const {
    if (done()) {
      return;
    }
    const State& state = state_.get();
    const ManagerPtr owner = state.owner;
    const GilRelease released;
    state.cancel(owner->manager);
  }
  // Waits in slices, so that Ctrl-C ends it.
  nb::object wait(std::optional<double> timeout) {
    constexpr Duration kSlice = std::chrono::milliseconds(50);
    const TimePoint deadline =
        timeout ? deadline_after(steady_clock().now(), duration_of(*timeout)) : TimePoint(kLatestTime);
    while (!done()) {
      const Duration left = time_until(deadline, steady_clock().now());
      const std::shared_ptr<Ending<Outcome>> ending = state_.get().ending;
      bool is_over = false;
      {
        const GilRelease released;
        is_over = ending->wait_for(std::min(kSlice, left));
      }
      if (PyErr_CheckSignals() != 0) {
        throw nb::python_error();
      }
      if (Closable::is_exiting()) {
        raise(ErrorCode::kCancelled, "the interpreter exits");
      }
      if (!is_over && left == Duration::zero()) {
        raise(ErrorCode::kExpired, str_cat("the copy is still in flight after ", std::to_string(*timeout), " s"));
      }
    }
    return result();
  }
  nb::object result() {
    if (error_) {
      raise(*error_);
    }
    if (!result_.is_valid()) {
      const State& state = state_.get();
      if (!state.ending->is_over()) {
        raise(ErrorCode::kFailedPrecondition, "the copy is in flight; wait(), or await it");
      }
      Result<Outcome> outcome = state.ending->take();
      const ManagerPtr owner = state.owner;
      static_cast<void>(state_.close());  // the result keeps the manager, if it has to
      if (!outcome) {
        error_ = std::move(outcome).error();
        raise(*error_);
      }
      result_ = python_of(owner, *std::move(outcome));
    }
    return result_;
  }
  [[nodiscard]] bool watch(const WakeupsHandle& wakeups, std::uint64_t number) const {
    return !done() && state_.get().ending->watch(wakeups.wakeups, number);
  }
  void unwatch(const WakeupsHandle& wakeups, std::uint64_t number) const {
    if (!done()) {
      state_.get().ending->unwatch(wakeups.wakeups, number);
    }
  }

 private:
  // Destroyed from the last to the first: an outcome that nobody took releases its blocks before the manager goes.
  struct State {
    ManagerPtr owner;
    std::shared_ptr<Ending<Outcome>> ending;
    Cancel cancel;
  };
  OfProcess<State> state_;
  nb::object result_;
  std::optional<Error> error_;
};

template <typename Outcome>
void bind_copy(nb::module_& module, const char* name, const char* outcome, const char* doc) {
  using This = Copy<Outcome>;
  const auto returns = [outcome](const char* head) { return nb::sig(kept(str_cat("def ", head, " -> ", outcome))); };
  nb::class_<This>(module, name, doc)
      .def("done", &This::done, "Whether the copy has ended.")
      .def("cancel", &This::cancel,
           "What has not begun does not begin. The outcome comes as always, with what was copied until then.")
      .def("wait", &This::wait, "timeout"_a = nb::none(), returns("wait(self, timeout: float | None = None)"),
           "Waits for the outcome. Raises ExpiredError after `timeout` seconds; the copy goes on then.")
      .def("result", &This::result, returns("result(self)"),
           "The outcome of a copy that has ended. Raises its error, and FailedPreconditionError before the end.")
      .def("_watch", &This::watch, "wakeups"_a, "number"_a)
      .def("_unwatch", &This::unwatch, "wakeups"_a, "number"_a)
      .def(
          "__await__",
          [](nb::handle self) { return nb::module_::import_("cairn._wakeups").attr("wait")(self).attr("__await__")(); },
          nb::sig(kept(str_cat("def __await__(self) -> collections.abc.Generator[typing.Any, None, ", outcome, "]"))))
      .def("__repr__",
           [name](const This& self) { return str_cat("<cairn.", name, self.done() ? " done>" : " in flight>"); });
}

std::optional<TimePoint> deadline_of(std::optional<double> seconds) {
  return seconds ? std::optional(deadline_after(steady_clock().now(), duration_of(*seconds))) : std::nullopt;
}

std::vector<BlockKey> copy_keys(const KeysArgument& keys) { return {keys.get().begin(), keys.get().end()}; }

// Starts the request with the `done` of a new copy. `start` runs without the GIL and returns the id of the request, and
// `cancel` cancels that id.
template <typename Outcome, typename Start, typename Cancel>
Copy<Outcome> start_copy(const Manager& manager, Start start, Cancel cancel) {
  const ManagerPtr owner = manager.use();
  const auto ending = std::make_shared<Ending<Outcome>>();
  auto started = [&] {
    const GilRelease released;
    return start(owner->manager, [ending](Result<Outcome>&& outcome) { ending->end(std::move(outcome)); });
  }();
  const auto id = value_or_raise(std::move(started));
  return Copy<Outcome>(owner, ending, [id, cancel](const KvBlockManager& of) { cancel(of, id); });
}

constexpr auto kCancelLoad = [](const KvBlockManager& manager, LoadId id) { manager.cancel(id); };

Copy<LoadOutcome> load(const Manager& manager, const KeysArgument& keys, std::optional<double> deadline,
                       std::uint32_t max_blocks, bool weigh) {
  LoadRequest request{.keys = copy_keys(keys), .deadline = deadline_of(deadline), .most = max_blocks, .weigh = weigh};
  return start_copy<LoadOutcome>(
      manager,
      [&](const KvBlockManager& on, auto done) {
        request.done = [done](LoadOutcome&& outcome) { done(std::move(outcome)); };
        return on.load(std::move(request));
      },
      kCancelLoad);
}

Copy<ImmutableBlocks> onboard(const Manager& manager, const BlocksHandle<ImmutableBlocks>& blocks,
                              BlocksHandle<MutableBlocks>* targets, std::optional<double> deadline) {
  OnboardRequest request{.blocks = blocks.with([](const ImmutableBlocks& held) { return held.share(); }),
                         .deadline = deadline_of(deadline)};
  if (targets != nullptr) {
    request.targets.emplace(targets->take());
  }
  const auto put_back = [&] {
    if (targets != nullptr && request.targets) {
      targets->put_back(*std::move(request.targets));  // the caller still has them
    }
  };
  try {
    return start_copy<ImmutableBlocks>(
        manager,
        [&](const KvBlockManager& on, auto done) {
          request.done = [done](Result<ImmutableBlocks>&& brought) { done(std::move(brought)); };
          return on.onboard_blocks(std::move(request));
        },
        kCancelLoad);
  } catch (...) {
    put_back();
    throw;
  }
}

Copy<std::uint32_t> prefetch(const Manager& manager, const KeysArgument& keys, std::optional<double> deadline) {
  PrefetchRequest request{.keys = copy_keys(keys), .deadline = deadline_of(deadline)};
  return start_copy<std::uint32_t>(
      manager,
      [&](const KvBlockManager& on, auto done) {
        request.done = [done](std::uint32_t blocks) { done(blocks); };
        return on.prefetch(std::move(request));
      },
      kCancelLoad);
}

Copy<OffloadOutcome> offload(const Manager& manager, const KeysArgument& keys, const std::string& into,
                             std::uint32_t priority, std::optional<double> deadline) {
  const CacheLevel level = level_of(into);
  OffloadRequest request{.keys = copy_keys(keys), .priority = priority};
  request.deadline = deadline_of(deadline).value_or(request.deadline);
  return start_copy<OffloadOutcome>(
      manager,
      [&](const KvBlockManager& on, auto done) {
        request.done = [done](OffloadOutcome&& outcome) { done(std::move(outcome)); };
        return on.offload(level, std::move(request));
      },
      [level](const KvBlockManager& on, OffloadRequestId id) { on.cancel(level, id); });
}

}  // namespace

void bind_loads(nb::module_& module) {
  nb::class_<LoadedBlocks>(module, "LoadOutcome", "What a load has brought to the device.")
      .def_prop_ro(
          "blocks", [](const LoadedBlocks& self) { return self.blocks; },
          nb::sig("def blocks(self) -> ImmutableBlocks"), "The longest prefix, held.")
      .def_prop_ro(
          "prefix", [](const LoadedBlocks& self) { return self.outcome.prefix; },
          "How many blocks, from the first key on, are on the device now.")
      .def_prop_ro(
          "sources",
          [](const LoadedBlocks& self) {
            nb::dict all;
            for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
              all[name_of(level)] = self.outcome.from[index_of(level)];
            }
            return all;
          },
          nb::sig("def sources(self) -> dict[str, int]"), "Of those blocks, how many were found in each tier.")
      .def_prop_ro(
          "not_worth_it", [](const LoadedBlocks& self) { return self.outcome.not_worth_it; },
          "Blocks that were found and are faster to compute.")
      .def_prop_ro(
          "why", [](const LoadedBlocks& self) { return self.outcome.why; },
          "Why the prefix is shorter than what was to be loaded.")
      .def("__repr__", [](const LoadedBlocks& self) {
        const LoadOutcome& at = self.outcome;
        return str_cat("LoadOutcome(prefix=", at.prefix, ", device=", at.from[0], ", host=", at.from[1],
                       ", disk=", at.from[2], ", not_worth_it=", at.not_worth_it, at.why.empty() ? "" : ", why='",
                       at.why, at.why.empty() ? ")" : "')");
      });

  nb::class_<OffloadOutcome>(module, "OffloadOutcome", "What became of the blocks that were to be copied down.")
      .def_prop_ro(
          "is_below",
          [](const OffloadOutcome& self) {
            nb::list all;
            for (const bool below : self.is_below) {
              all.append(below);
            }
            return all;
          },
          nb::sig("def is_below(self) -> list[bool]"), "For each key, whether the lower tier has it now.")
      .def_ro("error", &OffloadOutcome::error, "Of the first key that is not below; empty if all are.")
      .def_prop_ro(
          "refused",
          [](const OffloadOutcome& self) {
            nb::dict all;
            for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
              if (self.refused[i] != 0) {
                all[std::string(to_string(static_cast<OffloadRefusal>(i))).c_str()] = self.refused[i];
              }
            }
            return all;
          },
          nb::sig("def refused(self) -> dict[str, int]"), "How many keys are not below, by reason.")
      .def("__repr__", [](const OffloadOutcome& self) {
        return str_cat("OffloadOutcome(", std::ranges::count(self.is_below, true), " of ", self.is_below.size(),
                       " below)");
      });

  bind_copy<LoadOutcome>(
      module, "Load", "LoadOutcome",
      "A load in flight: wait() for it, or await it. Cancelling the awaiting task cancels the load.");
  bind_copy<ImmutableBlocks>(module, "Onboard", "ImmutableBlocks",
                             "Blocks of a lower tier on their way to the device.");
  bind_copy<std::uint32_t>(module, "Prefetch", "int", "Blocks on their way from disk to host memory.");
  bind_copy<OffloadOutcome>(module, "Offload", "OffloadOutcome", "Blocks on their way to the tier below.");

  auto manager = nb::borrow<nb::class_<Manager>>(module.attr("Manager"));
  manager.def(
      "load", &load, "keys"_a, nb::kw_only(), "deadline"_a = nb::none(), "max_blocks"_a = 0, "weigh"_a = true,
      "Begins to load the longest prefix of the keys to the device. It ends by `deadline` (seconds; the default is "
      "onboard.deadline) with what has arrived. `weigh=False` loads what is found, even if computing is faster.");
  manager.def(
      "onboard", &onboard, "blocks"_a, "targets"_a.none() = nb::none(), nb::kw_only(), "deadline"_a = nb::none(),
      "Begins to copy blocks that the caller holds in a lower tier to the device, into `targets` or new blocks.");
  manager.def("prefetch", &prefetch, "keys"_a, nb::kw_only(), "deadline"_a = nb::none(),
              "Begins to copy blocks that are only on disk to host memory. The outcome is how many arrived.");
  manager.def("offload", &offload, "keys"_a, "into"_a = "host", nb::kw_only(), "priority"_a = 50,
              "deadline"_a = nb::none(),
              "Begins to copy blocks to the tier `into` from the tier above it, whatever the mode of the link.");
}

}  // namespace cairn::python
