// cairn.BlockPool.
#include "python/src/pool.h"
#include "python/src/ending.h"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cairn/base/str_cat.h"
#include "python/src/duration.h"
#include "python/src/keys.h"
#include "python/src/record.h"

namespace cairn::python {
namespace {

template <typename Kind, std::size_t kCount>
Kind kind_of(std::string_view name, const std::pair<std::string_view, Kind> (&kinds)[kCount], std::string_view what) {
  std::string expected;
  for (const auto& [known, kind] : kinds) {
    if (name == known) {
      return kind;
    }
    expected += str_cat(expected.empty() ? "" : ", ", known);
  }
  raise(ErrorCode::kInvalidArgument, str_cat("unknown ", what, " '", name, "' (expected ", expected, ")"));
}

constexpr std::pair<std::string_view, CacheLevel> kTiers[] = {
    {"G1", CacheLevel::kG1}, {"G2", CacheLevel::kG2}, {"G3", CacheLevel::kG3}, {"G4", CacheLevel::kG4}};
constexpr std::pair<std::string_view, Duplicates> kDuplicates[] = {{"reject", Duplicates::kReject},
                                                                   {"allow", Duplicates::kAllow}};
constexpr std::pair<std::string_view, RetentionHint::Kind> kHints[] = {
    {"none", RetentionHint::Kind::kNone},
    {"returns", RetentionHint::Kind::kReturns},
    {"system_prompt", RetentionHint::Kind::kSystemPrompt},
    {"will_not_return", RetentionHint::Kind::kWillNotReturn}};

PolicyKind policy_of(std::string_view name) {
  if (const std::optional<PolicyKind> policy = parse_policy(name)) {
    return *policy;
  }
  std::string expected;
  for (const PolicyKind policy : kAllPolicies) {
    expected += str_cat(expected.empty() ? "" : ", ", to_string(policy));
  }
  raise(ErrorCode::kInvalidArgument, str_cat("unknown policy '", name, "' (expected ", expected, ")"));
}

PoolRef make_pool(const BlockPoolOptions& options) {
  Result<std::unique_ptr<BlockPool>> made = [&] {
    const ReleaseGilIf gil(options.capacity >= kManyBlocks);
    return BlockPool::create(options);
  }();
  std::shared_ptr<BlockPool> pool = value_or_raise(std::move(made));
  BlockPool* raw = pool.get();
  return PoolRef{.owner = std::move(pool), .pool = raw};
}

// Calls the pool; without the GIL if there are many keys or blocks.
template <typename Call>
auto calling(const PoolHandle& handle, std::size_t count, Call call) {
  BlockPool& pool = handle.pool();
  const ReleaseGilIf gil(count >= kManyBlocks);
  return call(pool);
}

BlocksHandle<MutableBlocks> allocate(const PoolHandle& handle, std::uint32_t count, std::uint8_t tenant) {
  return {handle.ref(), value_or_raise(calling(
                            handle, count, [&](BlockPool& pool) { return pool.allocate(count, TenantId{tenant}); }))};
}

// A call that takes keys and returns a handle.
template <auto call, typename Blocks>
BlocksHandle<Blocks> find(const PoolHandle& handle, const KeysArgument& keys) {
  return {handle.ref(), calling(handle, keys.size(), [&](BlockPool& pool) { return (pool.*call)(keys.get()); })};
}

void bind_records(nb::module_& module) {
  bind_record<PoolCounts>(
      module, "PoolCounts",
      "How many blocks of a pool are in which state. free + inactive + active + quarantined = total.",
      Field{"total", &PoolCounts::total, "All blocks."}, Field{"free", &PoolCounts::free, "Free blocks."},
      Field{"inactive", &PoolCounts::inactive, "Registered blocks that nobody holds; they can be evicted."},
      Field{"active", &PoolCounts::active, "Blocks in use, private ones included."},
      Field{"quarantined", &PoolCounts::quarantined, "Blocks that a transfer may still touch."},
      Field{"registered", &PoolCounts::registered, "Distinct keys that can be matched."},
      Field{"pinned", &PoolCounts::pinned, "References held by PinnedBlocks."},
      Field{"ready", &PoolCounts::ready, "Of the inactive blocks, those to be evicted first."},
      Field{"borrowed", &PoolCounts::borrowed, "Of the inactive blocks, those that a copy reads."},
      Field{"available", &PoolCounts::available, "Blocks that can be allocated now."})
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
  bind_record<PoolStats>(
      module, "PoolStats", "What a pool did since it was created.",
      Field{"allocated", &PoolStats::allocated, "Blocks."},
      Field{"allocation_failures", &PoolStats::allocation_failures, "Calls."},
      Field{"evicted", &PoolStats::evicted, "Blocks that were evicted."},
      Field{"expired", &PoolStats::expired, "Blocks whose time to live ended."},
      Field{"reset", &PoolStats::reset, "Blocks that were reset."},
      Field{"discarded", &PoolStats::discarded, "Blocks whose bytes were wrong."},
      Field{"registered", &PoolStats::registered, "Blocks that were registered."},
      Field{"deduplicated", &PoolStats::deduplicated, "Blocks freed because their key was registered already."},
      Field{"duplicated", &PoolStats::duplicated, "Blocks kept although their key was registered already."},
      Field{"lookups", &PoolStats::lookups, "Keys looked up."}, Field{"hits", &PoolStats::hits, "Of those, found."},
      Field{"abandoned_in_quarantine", &PoolStats::abandoned_in_quarantine, "Blocks that were leaked."});
  bind_record<TenantUsage>(module, "TenantUsage", "What a tenant of a pool has.",
                           Field{"used", &TenantUsage::used, "Blocks charged to the tenant."},
                           Field{"inactive", &TenantUsage::inactive, "Of those, evictable."});
  bind_record<ResetOutcome>(module, "ResetOutcome", "What came of a reset.",
                            Field{"reset", &ResetOutcome::reset, "Blocks that are free now."},
                            Field{"not_found", &ResetOutcome::not_found, "Keys that the pool does not have."},
                            Field{"in_use", &ResetOutcome::in_use, "Blocks that are in use, and were not reset."});
  bind_record<PoolFenceOutcome>(
      module, "PoolFenceOutcome", "What came of a fence.",
      Field{"dropped", &PoolFenceOutcome::dropped, "Blocks that were inactive."},
      Field{"in_use", &PoolFenceOutcome::in_use, "Blocks that their holders keep, and that are no longer found."});
  bind_record<PeekedBlock>(
      module, "PeekedBlock", "What `BlockPool.peek` sees of a block.",
      Field{"facts", &PeekedBlock::facts, "What the pool knows of the block."},
      Field{"parent", &PeekedBlock::parent, "The key of the block before it, if the pool has that block."},
      Field{"in_use", &PeekedBlock::in_use, "Whether somebody holds it."},
      Field{"tenant", [](const PeekedBlock& peeked) { return index_of(peeked.tenant); }, "Whom it is charged to."});
  nb::class_<TenantQuota>(module, "TenantQuota", R"(What a tenant of a shared pool may have.

`reserved` blocks are always available to the tenant; it never has more than `limit`.)")
      .def(
          "__init__",
          [](TenantQuota* self, std::string name, std::uint32_t reserved, std::optional<std::uint32_t> limit) {
            new (self) TenantQuota{.name = std::move(name), .reserved = reserved, .limit = limit};
          },
          nb::arg("name"), nb::arg("reserved") = 0, nb::arg("limit") = nb::none())
      .def_ro("name", &TenantQuota::name, "The tenant's name.")
      .def_ro("reserved", &TenantQuota::reserved, "Blocks that are always available to the tenant.")
      .def_ro("limit", &TenantQuota::limit, "The most blocks that it has; None for the whole pool.")
      .def("__repr__", [](nb::handle self) {
        return nb::str("cairn.TenantQuota({!r}, reserved={}, limit={})")
            .format(self.attr("name"), self.attr("reserved"), self.attr("limit"));
      });
}

std::uint32_t hint(const PoolHandle& handle, const KeysArgument& keys, std::string_view kind, double after) {
  const RetentionHint given{.kind = kind_of(kind, kHints, "hint"), .in = duration_of(after)};
  return value_or_raise(calling(handle, keys.size(), [&](BlockPool& pool) { return pool.hint(keys.get(), given); }));
}

PoolFenceOutcome fence(const PoolHandle& handle) {
  const Result<PoolFenceOutcome> outcome =
      calling(handle, handle.pool().capacity(), [](BlockPool& pool) -> Result<PoolFenceOutcome> {
        CAIRN_TRY_ASSIGN(PoolFence planned, pool.plan_fence());
        const PoolFenceOutcome raised = pool.raise_fence(std::move(planned));
        pool.lower_fence();
        while (pool.reclaim(4096)) {
        }
        return raised;
      });
  return value_or_raise(Result<PoolFenceOutcome>(outcome));
}

void restore(const PoolHandle& handle, const std::vector<std::uint32_t>& block_ids, const KeysArgument& keys) {
  if (block_ids.size() != keys.size()) {
    raise(ErrorCode::kInvalidArgument,
          str_cat(block_ids.size(), " block ids for ", keys.size(), " keys; give one each"));
  }
  std::vector<RestoredBlock> blocks;
  for (std::size_t i = 0; i < block_ids.size(); ++i) {
    blocks.push_back({.block_id = BlockId{block_ids[i]}, .key = keys.get()[i]});
  }
  check(calling(handle, blocks.size(), [&](BlockPool& pool) { return pool.restore(blocks); }));
}

std::vector<std::pair<std::uint32_t, BlockFacts>> list_blocks(const PoolHandle& handle) {
  std::vector<ListedBlock> listed;
  const std::uint32_t capacity = handle.pool().capacity();
  calling(handle, capacity, [&](BlockPool& pool) {
    constexpr std::uint32_t kAtOnce = 4096;  // the pool is locked for so many at a time
    for (std::uint32_t next = 0; next < capacity;) {
      next = pool.list_blocks(next, kAtOnce, kAtOnce, listed);
    }
  });
  std::vector<std::pair<std::uint32_t, BlockFacts>> blocks;
  blocks.reserve(listed.size());
  for (const ListedBlock& block : listed) {
    blocks.emplace_back(index_of(block.block_id), block.facts);
  }
  return blocks;
}

void bind_calls(nb::class_<PoolHandle>& bound) {
  bound
      .def("allocate", &allocate, nb::arg("count"), nb::arg("tenant") = 0,
           R"(Blocks to be filled: free ones first, then ready ones, then victims of the policy.

All or nothing: raises `ExhaustedError` if there are too few.)")
      .def(
          "allocate_with_victims",
          [](const PoolHandle& handle, std::uint32_t count, std::uint8_t tenant) {
            std::vector<BlockKey> evicted;
            MutableBlocks blocks = value_or_raise(calling(
                handle, count, [&](BlockPool& pool) { return pool.allocate(count, TenantId{tenant}, evicted); }));
            return std::pair(BlocksHandle<MutableBlocks>(handle.ref(), std::move(blocks)), Keys(std::move(evicted)));
          },
          nb::arg("count"), nb::arg("tenant") = 0,
          "The same, and the keys of the blocks that were evicted for it, in that order.")
      .def("match_prefix", &find<&BlockPool::match_prefix, ImmutableBlocks>, nb::arg("keys"),
           "The blocks of the keys up to the first miss.")
      .def(
          "match_scattered",
          [](const PoolHandle& handle, const KeysArgument& keys) {
            ScatteredMatch match =
                calling(handle, keys.size(), [&](BlockPool& pool) { return pool.match_scattered(keys.get()); });
            return std::pair(BlocksHandle<ImmutableBlocks>(handle.ref(), std::move(match.blocks)),
                             std::move(match.position));
          },
          nb::arg("keys"), "The blocks of all keys that are hits, and for each key where its block is among them.")
      .def("scan", &find<&BlockPool::scan, ImmutableBlocks>, nb::arg("keys"), "The blocks of all keys that are hits.")
      .def("hold", &find<&BlockPool::hold, PinnedBlocks>, nb::arg("keys"),
           "Pin the blocks of these keys, for a reader that may take long; skips misses. Not a lookup or a use.")
      .def("borrow", &find<&BlockPool::borrow, BorrowedBlocks>, nb::arg("keys"),
           "Lend the bytes of these blocks to a copy; skips misses, and blocks that are lent already.")
      .def(
          "pin_prefix",
          [](const PoolHandle& handle, const KeysArgument& keys, bool counts_as_use) {
            const auto use = counts_as_use ? BlockPool::LoadUse::kCounts : BlockPool::LoadUse::kDoesNotCount;
            return BlocksHandle<PinnedBlocks>(handle.ref(), calling(handle, keys.size(), [&](BlockPool& pool) {
                                                return pool.pin_prefix(keys.get(), use);
                                              }));
          },
          nb::arg("keys"), nb::kw_only(), nb::arg("counts_as_use") = true,
          "Pin the blocks of the keys up to the first miss, to be copied to a tier above.")
      .def(
          "peek",
          [](const PoolHandle& handle, const KeysArgument& keys) {
            return calling(handle, keys.size(), [&](BlockPool& pool) { return pool.peek(keys.get()); });
          },
          nb::arg("keys"), "What the pool knows of each key's block; None for misses. Changes nothing.")
      .def(
          "__contains__", [](const PoolHandle& handle, const BlockKey& key) { return handle.pool().contains(key); },
          nb::arg("key"))
      .def(
          "contains_parent_of",
          [](const PoolHandle& handle, const BlockKey& key) { return handle.pool().contains_parent_of(key); },
          nb::arg("key"), "Whether the pool has the block before this one in its sequence.")
      .def(
          "count_prefix",
          [](const PoolHandle& handle, const KeysArgument& keys) {
            return calling(handle, keys.size(), [&](BlockPool& pool) { return pool.count_prefix(keys.get()); });
          },
          nb::arg("keys"), "How many blocks match_prefix would return. Changes nothing.")
      .def("hint", &hint, nb::arg("keys"), nb::arg("kind"), nb::arg("after") = 0.0,
           R"(Tell the pool what an engine expects of these blocks; returns how many were found.

`kind` is "returns" (needed again in about `after` seconds), "system_prompt", "will_not_return", or "none" to take hints back.)")
      .def(
          "end_request",
          [](const PoolHandle& handle, const KeysArgument& keys, std::string_view ending) {
            const RequestEnding given = ending_of(ending);
            return calling(handle, keys.size(), [&](BlockPool& pool) { return pool.end_request(keys.get(), given); });
          },
          nb::arg("keys"), nb::arg("ending"),
          R"(The request whose sequence these keys are ended; returns how many blocks were found.

`ending` is "tool_call", "end_of_turn", "length", "abort" or "unknown". For blocks that are released without it.)")
      .def(
          "reset",
          [](const PoolHandle& handle, const KeysArgument& keys) {
            return calling(handle, keys.size(), [&](BlockPool& pool) { return pool.reset(keys.get()); });
          },
          nb::arg("keys"), "Make the inactive blocks of these keys free.")
      .def(
          "reset_inactive",
          [](const PoolHandle& handle) {
            return calling(handle, handle.pool().capacity(), [](BlockPool& pool) { return pool.reset_inactive(); });
          },
          "Make all inactive blocks free; returns how many.")
      .def(
          "discard",
          [](const PoolHandle& handle, const KeysArgument& keys) {
            return calling(handle, keys.size(), [&](BlockPool& pool) { return pool.discard(keys.get()); });
          },
          nb::arg("keys"), "The bytes of these blocks are wrong: they are not matched from now on. Returns how many.")
      .def("fence", &fence,
           "Nothing that was registered or allocated before is found from now on. Holders keep their blocks.")
      .def(
          "claim_victims",
          [](const PoolHandle& handle, std::uint32_t count) {
            return BlocksHandle<ImmutableBlocks>(
                handle.ref(), calling(handle, count, [&](BlockPool& pool) { return pool.claim_victims(count); }));
          },
          nb::arg("count"),
          "Hold the next blocks that the policy would evict, to copy them elsewhere; then release_as_victims().")
      .def("restore", &restore, nb::arg("block_ids"), nb::arg("keys"),
           "Register blocks that a tier still has from before, the first to be evicted first; for a new pool.")
      .def("list_blocks", &list_blocks, "All blocks that can be matched, with their ids.");
}

void bind_properties(nb::class_<PoolHandle>& bound) {
  bound.def_prop_ro(
           "capacity", [](const PoolHandle& handle) { return handle.pool().capacity(); }, "Number of blocks.")
      .def_prop_ro(
          "block_size", [](const PoolHandle& handle) { return handle.pool().block_size(); }, "Tokens in a block.")
      .def_prop_ro(
          "tier", [](const PoolHandle& handle) { return to_string(handle.pool().tier()); }, "G1 to G4.")
      .def_prop_ro(
          "metadata_bytes", [](const PoolHandle& handle) { return handle.pool().bytes(); }, "Memory of all metadata.")
      .def_prop_ro(
          "counts", [](const PoolHandle& handle) { return handle.pool().counts(); },
          "How many blocks are in which state now.")
      .def_prop_ro(
          "stats", [](const PoolHandle& handle) { return handle.pool().stats(); }, "What the pool did so far.")
      .def(
          "usage",
          [](const PoolHandle& handle, std::uint8_t tenant) {
            return value_or_raise(handle.pool().usage(TenantId{tenant}));
          },
          nb::arg("tenant") = 0, "What a tenant has.")
      .def_prop_ro(
          "wanted_victims", [](const PoolHandle& handle) { return handle.pool().wanted_victims(); },
          "How many blocks to claim now, so that enough are free or ready.")
      .def(
          "set_low_water", [](const PoolHandle& handle, std::uint32_t blocks) { handle.pool().set_low_water(blocks); },
          nb::arg("blocks"), "Change how many blocks should be free or ready. For a pool with low_water.")
      .def(
          "check_invariants",
          [](const PoolHandle& handle) {
            calling(handle, handle.pool().capacity(), [](BlockPool& pool) { pool.check_invariants(); });
          },
          "Abort the process if an invariant is broken. For tests.")
      .def("__repr__", [](const PoolHandle& handle) {
        const PoolCounts counts = handle.pool().counts();
        return str_cat("<cairn.BlockPool ", to_string(handle.pool().tier()), ": ", counts.total, " blocks of ",
                       handle.pool().block_size(), " tokens, ", counts.free, " free, ", counts.inactive, " inactive>");
      });
}

}  // namespace

void bind_pool(nb::module_& module) {
  bind_handles(module);
  bind_records(module);
  nb::class_<PoolHandle> bound(module, "BlockPool",
                               R"(A fixed number of blocks in one tier, with prefix reuse.

It allocates, registers, finds and evicts blocks; it knows nothing of their bytes. `policy` is fifo, lru, lineage,
lineage-fifo, lfu, slru, arc, s3-fifo, multi-lru or adaptive; `leaves_first` evicts a block only after its children. `hints`
allows `hint`, `time_to_live` allows retentions with a time, and `low_water` keeps so many blocks free or ready. `seed` makes
what the policy forgets repeatable. All calls are safe from any thread. Handles keep the pool alive.)");
  bound.def(
      "__init__",
      [](PoolHandle* self, std::uint32_t capacity, std::uint32_t block_size, std::string_view policy,
         std::string_view tier, bool leaves_first, std::string_view duplicates, bool reset_on_release,
         const Retention* retention, bool time_to_live, bool hints, bool checksums,
         const std::vector<TenantQuota>& tenants, std::optional<std::uint64_t> seed, std::uint32_t low_water) {
        new (self) PoolHandle(make_pool({.capacity = capacity,
                                         .block_size = block_size,
                                         .tier = kind_of(tier, kTiers, "tier"),
                                         .policy = policy_of(policy),
                                         .leaves_first = leaves_first,
                                         .duplicates = kind_of(duplicates, kDuplicates, "treatment of duplicates"),
                                         .reset_on_release = reset_on_release,
                                         .retention = retention == nullptr ? Retention() : *retention,
                                         .time_to_live = time_to_live,
                                         .hints = hints,
                                         .checksums = checksums,
                                         .tenants = tenants,
                                         .seed = seed ? std::optional(KeySeed::from(*seed)) : std::nullopt,
                                         .low_water = low_water}));
      },
      nb::arg("capacity"), nb::arg("block_size"), nb::arg("policy") = "adaptive", nb::kw_only(), nb::arg("tier") = "G1",
      nb::arg("leaves_first") = false, nb::arg("duplicates") = "reject", nb::arg("reset_on_release") = false,
      nb::arg("retention") = nb::none(), nb::arg("time_to_live") = false, nb::arg("hints") = false,
      nb::arg("checksums") = false, nb::arg("tenants") = nb::make_tuple(), nb::arg("seed") = nb::none(),
      nb::arg("low_water") = 0);
  bind_calls(bound);
  bind_properties(bound);
}

}  // namespace cairn::python
