// for_each_prefetched: visits slots in order while the records of those further on are on their way from memory.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/base/ids.h"

namespace cairn {

// About as many misses as a core keeps in flight.
inline constexpr std::size_t kLookahead = 12;

template <typename Prefetch, typename Visit>
void for_each_prefetched(std::span<const SlotId> slots, Prefetch prefetch, Visit visit) {
  const std::size_t ahead = slots.size() < kLookahead ? slots.size() : kLookahead;
  for (std::size_t i = 0; i < ahead; ++i) {
    prefetch(slots[i]);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i + kLookahead < slots.size()) {
      prefetch(slots[i + kLookahead]);
    }
    visit(slots[i]);
  }
}

}  // namespace cairn
