// Helpers for tests of the tiers below a KvManager: links, and managers with tiers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cairn/sim/kv_manager_testing.h"
#include "cairn/sim/link_network.h"
#include "cairn/sim/offload_engine.h"

namespace cairn::sim {

// Blocks of 1 MB over links of 1 GB/s: a block takes a millisecond.
inline constexpr std::uint64_t kBlockBytes = 1'000'000;

inline OffloadTierOptions test_tier(LinkNetwork& network, CacheLevel level, std::uint32_t capacity,
                                    const LinkOptions& link = {.bytes_per_second = 1'000'000'000}) {
  return {.level = level,
          .capacity = capacity,
          .eviction = PolicyKind::kLineageTick,
          .down = *network.add_link(link),
          .up = *network.add_link(link)};
}

// A G2 of this many blocks.
inline void attach_test_offload_engine(TestManager& manager, LinkNetwork& network, std::uint32_t g2_blocks) {
  const Status attached = manager->attach_offload_engine(
      {.block_bytes = kBlockBytes, .tiers = {test_tier(network, CacheLevel::kG2, g2_blocks)}}, network);
  ASSERT_TRUE(attached) << attached.error().message;
}

inline void finish_everything(TestManager& manager) {
  while (manager.advance()) {
  }
}

// Uses this many blocks at once, waits until the evicted blocks have been copied down, and releases them. Afterwards up
// to `count` inactive blocks are in the tiers below only, and the blocks are free.
inline void push_out(TestManager& manager, std::uint64_t count) {
  std::vector<UniqueBlock> partials;
  for (std::uint64_t i = 0; i < count; ++i) {
    partials.push_back(UniqueBlock::partial(PartialId{1'000'000 + i}));
  }
  const std::size_t granted = *manager.process(Use{.blocks = partials, .keys = {}});
  finish_everything(manager);
  partials.erase(partials.begin() + static_cast<std::ptrdiff_t>(granted), partials.end());
  ASSERT_TRUE(manager.process(Deref{.blocks = partials}));
}

inline SeenEvent in_g2(SeenEvent event) { return in(CacheLevel::kG2, std::move(event)); }

}  // namespace cairn::sim
