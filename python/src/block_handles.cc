// The handles to the blocks of a pool: cairn.MutableBlocks, cairn.ImmutableBlocks and so on, and cairn.Retention.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/str_cat.h"
#include "python/src/duration.h"
#include "python/src/ending.h"
#include "python/src/keys.h"
#include "python/src/pool.h"
#include "python/src/record.h"

namespace cairn::python {
namespace {

using Hashes = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Blocks>
std::size_t count_of(const Blocks& blocks) {
  if constexpr (requires { blocks.block_ids(); }) {
    return blocks.block_ids().size();
  } else {
    return blocks.keys().size();
  }
}

// The step of a handle that consumes it. If the step fails, the handle keeps its blocks.
template <typename Next, typename Blocks, typename Step>
BlocksHandle<Next> consume(BlocksHandle<Blocks>& handle, Step step) {
  Blocks blocks = handle.take();
  Result<Next, Rejected<Blocks>> next = [&] {
    const ReleaseGilIf gil(count_of(blocks) >= kManyBlocks);
    return step(std::move(blocks));
  }();
  if (!next) {
    handle.put_back(std::move(next.error().blocks));
    raise(next.error().error);
  }
  return BlocksHandle<Next>(handle.pool(), *std::move(next));
}

template <typename Blocks>
void append(BlocksHandle<Blocks>& handle, BlocksHandle<Blocks>& other) {
  // An empty run would take the blocks of any pool, which this handle does not keep alive.
  if (&handle == &other || handle.pool().pool != other.pool().pool) {
    raise(ErrorCode::kInvalidArgument, &handle == &other
                                           ? "the handle itself; append another one"
                                           : "the blocks are of another pool; join runs of one pool only");
  }
  std::optional<Blocks> added(other.take());
  std::optional<Error> failed;
  const bool open = handle.try_with([&](Blocks& blocks) {
    Result<void, Rejected<Blocks>> appended = blocks.append(*std::move(added));
    added.reset();
    if (!appended) {
      failed = std::move(appended.error().error);
      added.emplace(std::move(appended.error().blocks));
    }
  });
  if (added) {
    other.put_back(*std::move(added));
  }
  if (!open) {
    BlocksHandle<Blocks>::raise_closed();
  }
  if (failed) {
    raise(*failed);
  }
}

// What every handle has.
template <typename Blocks>
nb::class_<BlocksHandle<Blocks>> bind_handle(nb::module_& module, const char* name, const char* doc) {
  using Handle = BlocksHandle<Blocks>;
  nb::class_<Handle> bound(module, name, doc);
  bound
      .def(
          "release", [](Handle& handle) { handle.release(); },
          "Release the blocks now. Has no effect if the handle is closed.")
      .def_prop_ro("closed", &Handle::is_closed, "Whether a step consumed the handle, or it was released.")
      .def("__len__", [](const Handle& handle) { return handle.with([](Blocks& blocks) { return count_of(blocks); }); })
      .def("__repr__",
           [name](const Handle& handle) {
             std::optional<std::size_t> count;
             handle.try_with([&](Blocks& blocks) { count = count_of(blocks); });
             return count ? str_cat("<cairn.", name, ": ", *count, *count == 1 ? " block>" : " blocks>")
                          : str_cat("<cairn.", name, ": closed>");
           })
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> typing_extensions.Self"))
      .def(
          "__exit__", [](Handle& handle, const nb::args& /*exception*/) { handle.release(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  if constexpr (requires(const Blocks& blocks) { blocks.block_ids(); }) {
    bound.def_prop_ro(
        "block_ids",
        [](const Handle& handle) {
          return make_array(handle.with([](Blocks& blocks) {
            std::vector<std::uint32_t> ids(blocks.block_ids().size());
            std::ranges::transform(blocks.block_ids(), ids.begin(), [](BlockId id) { return index_of(id); });
            return ids;
          }));
        },
        nb::rv_policy::move, "The ids of the blocks in the pool, as a numpy array (a copy).");
  }
  if constexpr (requires(const Blocks& blocks) { blocks.key(0); }) {
    bound.def_prop_ro(
        "keys",
        [](const Handle& handle) {
          return Keys(handle.with([](Blocks& blocks) {
            std::vector<BlockKey> keys(count_of(blocks));
            for (std::uint32_t i = 0; i < keys.size(); ++i) {
              keys[i] = blocks.key(i);
            }
            return keys;
          }));
        },
        "The keys of the blocks.");
  }
  if constexpr (requires(const Blocks& blocks) { blocks.facts(); }) {
    bound.def(
        "facts", [](const Handle& handle) { return handle.with([](Blocks& blocks) { return blocks.facts(); }); },
        "What the pool knows of each block, for another pool to take over.");
  }
  return bound;
}

template <typename Blocks>
bool is_current(const BlocksHandle<Blocks>& handle) {
  return handle.with([](Blocks& blocks) { return blocks.is_current(); });
}

void bind_mutable(nb::module_& module) {
  using Handle = BlocksHandle<MutableBlocks>;
  bind_handle<MutableBlocks>(module, "MutableBlocks",
                             R"(Blocks to be filled; private to the holder. `BlockPool.allocate` makes them.

`complete` gives them keys and consumes the handle.)")
      .def(
          "complete",
          [](Handle& handle, const KeysArgument& keys, const std::optional<Hashes>& tokens_hashes,
             std::optional<std::uint64_t> parent) {
            static_assert(sizeof(BlockHash) == sizeof(std::uint64_t));
            const BlockNames names{
                .keys = keys.get(),
                .tokens_hashes = tokens_hashes ? std::span(reinterpret_cast<const BlockHash*>(tokens_hashes->data()),
                                                           tokens_hashes->shape(0))
                                               : std::span<const BlockHash>(),
                .parent = parent ? std::optional(SequenceHash{*parent}) : std::nullopt};
            return consume<CompleteBlocks>(handle,
                                           [&](MutableBlocks blocks) { return std::move(blocks).complete(names); });
          },
          nb::arg("keys"), nb::kw_only(), nb::arg("tokens_hashes") = nb::none(), nb::arg("parent") = nb::none(),
          R"(The blocks are filled: give them their keys, one for each block. Consumes the handle.

For events: `tokens_hashes`, one for each block, and `parent`, the sequence hash of the block before the first.)")
      .def(
          "complete_sequence",
          [](Handle& handle, TokenSequence& sequence, std::size_t begin, std::optional<std::size_t> end) {
            const TokenBlockSequence& of = sequence.get();
            const BlockRange range{.begin = begin, .end = end.value_or(of.block_count())};
            // Under the GIL: nobody changes the sequence meanwhile.
            MutableBlocks blocks = handle.take();
            Result<CompleteBlocks, Rejected<MutableBlocks>> next = std::move(blocks).complete(of, range);
            if (!next) {
              handle.put_back(std::move(next.error().blocks));
              raise(next.error().error);
            }
            return BlocksHandle<CompleteBlocks>(handle.pool(), *std::move(next));
          },
          nb::arg("sequence"), nb::arg("begin") = 0, nb::arg("end") = nb::none(),
          "The same with the keys and hashes of blocks `begin` to `end` - 1 of a sequence.")
      .def(
          "complete_as",
          [](Handle& handle, const std::vector<BlockFacts>& facts) {
            return consume<CompleteBlocks>(handle,
                                           [&](MutableBlocks blocks) { return std::move(blocks).complete_as(facts); });
          },
          nb::arg("facts"), "The same with the facts that another pool had.")
      .def(
          "take_front",
          [](Handle& handle, std::uint32_t count) {
            return Handle(handle.pool(), handle.with([&](MutableBlocks& blocks) { return blocks.take_front(count); }));
          },
          nb::arg("count"), "Split off the first `count` blocks, or all if there are fewer.")
      .def("append", &append<MutableBlocks>, nb::arg("other"), "Add the blocks of `other`, which is consumed.")
      .def(
          "quarantine",
          [](Handle& handle) {
            MutableBlocks blocks = handle.take();
            return BlocksHandle<QuarantinedBlocks>(handle.pool(), std::move(blocks).quarantine());
          },
          "For blocks that a copy in flight may still write to, though nobody waits for it. Consumes the handle.")
      .def_prop_ro("is_current", &is_current<MutableBlocks>,
                   "Whether the blocks can be found once they are registered: no fence was raised since.");
}

void bind_complete(nb::module_& module) {
  using Handle = BlocksHandle<CompleteBlocks>;
  bind_handle<CompleteBlocks>(module, "CompleteBlocks", R"(Blocks that are filled and have keys, and are still private.

`register` lets others find them and consumes the handle.)")
      .def(
          "register",
          [](Handle& handle, const Retention* retention, std::optional<TokensArgument> argument) {
            const std::span<const Token> tokens = argument ? argument->get() : std::span<const Token>();
            return consume<ImmutableBlocks>(handle, [&](CompleteBlocks blocks) {
              return retention == nullptr ? std::move(blocks).register_blocks(tokens)
                                          : std::move(blocks).register_blocks(*retention, tokens);
            });
          },
          nb::arg("retention") = nb::none(), nb::arg("tokens") = nb::none(),
          R"(Let others find the blocks under their keys. Consumes the handle.

If the pool has a key already and rejects duplicates, it frees the new block, and the result holds the old one. `tokens` are
the token ids of all the blocks, for events.)")
      .def(
          "reset",
          [](Handle& handle) {
            CompleteBlocks blocks = handle.take();
            return BlocksHandle<MutableBlocks>(handle.pool(), std::move(blocks).reset());
          },
          "Take the keys away again. Consumes the handle.")
      .def("append", &append<CompleteBlocks>, nb::arg("other"), "Add the blocks of `other`, which is consumed.");
}

void bind_immutable(nb::module_& module) {
  using Handle = BlocksHandle<ImmutableBlocks>;
  bind_handle<ImmutableBlocks>(
      module, "ImmutableBlocks",
      "Registered blocks in use: they are neither evicted nor changed while a handle holds them.")
      .def_prop_ro(
          "tier",
          [](const Handle& handle) -> std::optional<std::string> {
            const std::optional<CacheLevel> tier = handle.with([](ImmutableBlocks& blocks) { return blocks.tier(); });
            return tier ? std::optional<std::string>(to_string(*tier)) : std::nullopt;
          },
          "The tier of the pool, G1 to G4; None if there are no blocks.")
      .def(
          "share",
          [](const Handle& handle, std::optional<std::uint32_t> count) {
            return Handle(handle.pool(), handle.with([&](ImmutableBlocks& blocks) {
              return blocks.share(std::min(count.value_or(blocks.size()), blocks.size()));
            }));
          },
          nb::arg("count") = nb::none(), "Another handle to the first `count` blocks; to all by default.")
      .def(
          "release",
          [](Handle& handle, std::string_view ending) {
            const RequestEnding given = ending_of(ending);
            if (handle.is_closed()) {
              return;
            }
            ImmutableBlocks blocks = handle.take();
            const ReleaseGilIf gil(blocks.size() >= kManyBlocks);
            std::move(blocks).release(given);
          },
          nb::arg("ending"),
          "Release the blocks of a request that ended: \"tool_call\", \"end_of_turn\", \"length\", \"abort\" or "
          "\"unknown\". The policy expects its session back accordingly.")
      .def(
          "release_tail",
          [](Handle& handle, std::uint32_t count) {
            handle.with([&](ImmutableBlocks& blocks) { blocks.release_tail(std::min(count, blocks.size())); });
          },
          nb::arg("count"), "Release all but the first `count` blocks.")
      .def("append", &append<ImmutableBlocks>, nb::arg("other"), "Add the blocks of `other`, which is consumed.")
      .def(
          "downgrade",
          [](const Handle& handle) {
            return BlocksHandle<WeakBlocks>(handle.pool(),
                                            handle.with([](ImmutableBlocks& blocks) { return blocks.downgrade(); }));
          },
          "A handle that knows the keys and does not hold the blocks.")
      .def(
          "pin",
          [](const Handle& handle) {
            return BlocksHandle<PinnedBlocks>(handle.pool(),
                                              handle.with([](ImmutableBlocks& blocks) { return blocks.pin(); }));
          },
          "A handle that keeps the blocks in place without using them.")
      .def(
          "reset_on_release",
          [](Handle& handle, bool reset) {
            handle.with([&](ImmutableBlocks& blocks) { blocks.reset_on_release(reset); });
          },
          nb::arg("reset") = true, "Whether the blocks become free, not inactive, when the last holder releases them.")
      .def(
          "set_retention",
          [](Handle& handle, const Retention& retention) {
            check(handle.with([&](ImmutableBlocks& blocks) { return blocks.set_retention(retention); }));
          },
          nb::arg("retention"), "How long the blocks are kept. Fails if the pool cannot keep the retention.")
      .def(
          "release_as_victims",
          [](Handle& handle) {
            ImmutableBlocks blocks = handle.take();
            const ReleaseGilIf gil(blocks.size() >= kManyBlocks);
            std::move(blocks).release_as_victims();
          },
          "Release the blocks as the next victims: they are evicted before all others. Consumes the handle.")
      .def_prop_ro("is_current", &is_current<ImmutableBlocks>,
                   "Whether others can find the blocks: no fence was raised since, and none was discarded.");
}

void bind_others(nb::module_& module) {
  bind_handle<WeakBlocks>(module, "WeakBlocks", "Knows the keys of blocks without holding the blocks.")
      .def_prop_ro(
          "keys",
          [](const BlocksHandle<WeakBlocks>& handle) {
            return handle.with([](WeakBlocks& blocks) { return copy_of(blocks.keys()); });
          },
          "The keys of the blocks.")
      .def(
          "upgrade",
          [](const BlocksHandle<WeakBlocks>& handle) -> std::optional<BlocksHandle<ImmutableBlocks>> {
            std::optional<ImmutableBlocks> blocks = handle.with([](WeakBlocks& weak) { return weak.upgrade(); });
            if (!blocks) {
              return std::nullopt;
            }
            return BlocksHandle<ImmutableBlocks>(handle.pool(), *std::move(blocks));
          },
          "A handle to all of the blocks, or None if one of them is gone.");
  bind_handle<PinnedBlocks>(module, "PinnedBlocks",
                            "Blocks that are kept in place without being used: by a copy that reads them.")
      .def_prop_ro("is_current", &is_current<PinnedBlocks>,
                   "Whether others can find the blocks: no fence was raised since, and none was discarded.");
  bind_handle<BorrowedBlocks>(module, "BorrowedBlocks",
                              R"(Blocks whose bytes a copy reads: they do not change meanwhile.

The blocks are not in use: each keeps its place in the order of eviction.)")
      .def_prop_ro(
          "is_current", &is_current<BorrowedBlocks>,
          "Whether the pool still has all of the blocks: none was reset or discarded, and no fence was raised.");

  using Quarantined = BlocksHandle<QuarantinedBlocks>;
  nb::class_<Quarantined>(module, "QuarantinedBlocks",
                          R"(Blocks whose memory a transfer may still touch although nobody needs their contents.

They become free by `release_proven_finished` only. Dropping the handle without it leaks them.)")
      .def_prop_ro("closed", &Quarantined::is_closed, "Whether the blocks were released.")
      .def("__len__",
           [](const Quarantined& handle) {
             return handle.with([](QuarantinedBlocks& blocks) { return blocks.block_ids().size(); });
           })
      .def(
          "release_proven_finished",
          [](Quarantined& handle) {
            QuarantinedBlocks blocks = handle.take();
            const ReleaseGilIf gil(blocks.block_ids().size() >= kManyBlocks);
            std::move(blocks).release_proven_finished();
          },
          "The transfer has ended: the blocks are free again. Consumes the handle.");
}

void bind_retention(nb::module_& module) {
  nb::class_<Retention>(module, "Retention", R"(How long a block is kept.

With any policy, blocks of higher `priority` (0 to 100) are evicted later. A block that was inactive for `priority_duration`
seconds gets the default priority; one that was inactive for `time_to_live` seconds becomes free.)")
      .def(
          "__init__",
          [](Retention* self, std::uint32_t priority, std::optional<double> priority_duration,
             std::optional<double> time_to_live) {
            new (self) Retention{.priority = priority,
                                 .priority_duration = duration_of(priority_duration),
                                 .time_to_live = duration_of(time_to_live)};
          },
          nb::arg("priority") = Retention::kDefaultPriority, nb::arg("priority_duration") = nb::none(),
          nb::arg("time_to_live") = nb::none())
      .def_ro("priority", &Retention::priority, "0 to 100; 35 by default.")
      .def_prop_ro(
          "priority_duration", [](const Retention& retention) { return seconds_of(retention.priority_duration); },
          "Seconds after which an inactive block gets the default priority; None for never.")
      .def_prop_ro(
          "time_to_live", [](const Retention& retention) { return seconds_of(retention.time_to_live); },
          "Seconds after which an inactive block becomes free; None for never.")
      .def("__repr__", [](nb::handle self) {
        return nb::str("cairn.Retention(priority={}, priority_duration={}, time_to_live={})")
            .format(self.attr("priority"), self.attr("priority_duration"), self.attr("time_to_live"));
      });
  bind_record<BlockFacts>(
      module, "BlockFacts", "Everything that a pool knows of a block, for another pool to take over.",
      Field{"key", [](const BlockFacts& facts) { return facts.block.key; }, "The key of the block."},
      Field{"parent", [](const BlockFacts& facts) { return value_of(facts.block.parent); },
            "The sequence hash of the block before it; undefined at position 0."},
      Field{"tokens_hash", [](const BlockFacts& facts) { return value_of(facts.block.tokens_hash); },
            "The hash of its tokens alone; 0 if none was given."},
      Field{"priority", &BlockFacts::priority, "Its priority, 0 to 100."},
      Field{"priority_ms", &BlockFacts::priority_ms, "How long it keeps its priority while it is inactive; 0: always."},
      Field{"time_to_live_ms", &BlockFacts::time_to_live_ms, "How long it is kept while it is inactive; 0: always."},
      Field{"checksum", &BlockFacts::checksum, "The checksum of its bytes; 0 if there is none."});
}

}  // namespace

void bind_handles(nb::module_& module) {
  bind_retention(module);
  bind_mutable(module);
  bind_complete(module);
  bind_immutable(module);
  bind_others(module);
}

}  // namespace cairn::python
