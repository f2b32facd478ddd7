// for_each_prefetched: visits blocks in order and fetches the records of those further on ahead of time.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/base/ids.h"

namespace cairn {

// About as many misses as a core keeps in flight.
inline constexpr std::size_t kLookahead = 12;

template <typename Prefetch, typename Visit>
void for_each_prefetched(std::span<const BlockId> block_ids, Prefetch prefetch, Visit visit) {
  const std::size_t ahead = block_ids.size() < kLookahead ? block_ids.size() : kLookahead;
  for (std::size_t i = 0; i < ahead; ++i) {
    prefetch(block_ids[i]);
  }
  for (std::size_t i = 0; i < block_ids.size(); ++i) {
    if (i + kLookahead < block_ids.size()) {
      prefetch(block_ids[i + kLookahead]);
    }
    visit(block_ids[i]);
  }
}

}  // namespace cairn
