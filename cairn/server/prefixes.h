// top_prefixes(): which prefixes the cached sequences share, by how many blocks the sharing saves.
//
// A prefix ends where cached sequences part. Two chats with the same system prompt of 40 blocks share one prefix of 40 blocks;
// without the cache these would be computed twice, so it saves 40 blocks.
//
// Thread safety: a function of plain values.
// Complexity: O(n log n) for n blocks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

struct TierBlock {
  CacheLevel tier = CacheLevel::kG1;
  ResidentBlock block = {};
};

struct SharedPrefix {
  BlockKey key = {};                                     // of its last block
  std::uint32_t blocks = 0;                              // of the prefix, from the first block of the sequence on
  std::uint64_t sequences = 0;                           // that are cached and begin with it
  std::uint64_t below = 0;                               // blocks of those sequences after the prefix
  std::array<std::uint64_t, kCacheLevels> by_tier = {};  // of those and the last one of the prefix, by the nearest tier

  [[nodiscard]] std::uint64_t saved() const { return sequences == 0 ? 0 : (sequences - 1) * blocks; }
  friend bool operator==(const SharedPrefix&, const SharedPrefix&) = default;
};

// At most `limit` prefixes that at least two sequences share, those that save the most blocks first.
[[nodiscard]] std::vector<SharedPrefix> top_prefixes(std::vector<TierBlock> blocks, std::size_t limit);

}  // namespace cairn
