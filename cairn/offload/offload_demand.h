// OffloadDemand: how many blocks of the upper pool an Offloader keeps ready to be evicted, and how many its transfers may read
// at a time. Follows the allocations of the pool. Pure: it knows no pool and no clock.
//
// Thread safety: none; the Offloader's lock guards every call.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cairn/pool/block_pool.h"

namespace cairn {

class OffloadDemand {
 public:
  // `allocated`: blocks since the pool was made; `largest`: the largest allocation since the last call. `is_caught_up`: no
  // block that is about to be evicted has to be copied. Returns the number of blocks to keep ready: as many as were allocated
  // while transfers were catching up, the most of late. Half of that is forgotten in about five turnovers of the pool.
  [[nodiscard]] std::uint32_t follow(std::uint64_t allocated, std::uint32_t largest, std::uint32_t capacity,
                                     bool is_caught_up) {
    if (allocated - faded_at_ >= capacity) {
      demand_ -= demand_ / 8;
      largest_ -= largest_ / 8;
      faded_at_ = allocated;
    }
    largest_ = std::max(largest_, largest);
    const std::uint64_t since = allocated - caught_up_at_;
    demand_ = std::max(demand_, static_cast<std::uint32_t>(std::min<std::uint64_t>(since, capacity)));
    if (is_caught_up) {
      caught_up_at_ = allocated;
    }
    // Never so many that claiming twice as much would be more than half of the pool.
    return std::min(demand_, capacity / 4);
  }

  // What the next batch may read. Blocks that are read cannot be evicted.
  struct Lendable {
    std::uint32_t blocks = 0;
    std::uint32_t unused = 0;  // of those, blocks that are not in use
  };
  // All batches together leave room for an allocation as large as the largest of late, even if everything that they read is
  // released. If there is no such room anyway, they leave most of what there is. They take no more than the link copies in a
  // short time, `link_blocks`: more would not be copied sooner, and would be missing above. A batch takes half, so that there
  // can be two. `on_loan`: blocks that transfers read now, without those that are late.
  [[nodiscard]] Lendable lendable(const PoolCounts& counts, std::uint32_t on_loan, std::uint32_t link_blocks) const {
    const auto next = [](std::uint32_t most, std::uint32_t lent) {
      return lent == 0 ? std::max(1U, (most + 1) / 2) : std::min((most + 1) / 2, most - std::min(most, lent));
    };
    const std::uint32_t most = std::min(counts.total / 8, link_blocks);
    const std::uint32_t evictable = counts.available() + counts.borrowed;
    return {.blocks = next(std::min(counts.total - std::min(counts.total, largest_), most), on_loan),
            .unused = next(std::min(evictable > largest_ ? evictable - largest_ : evictable / 8, most),
                           std::min(counts.borrowed, on_loan))};
  }

 private:
  std::uint32_t demand_ = 0;   // the most blocks that were allocated before transfers had caught up, of late
  std::uint32_t largest_ = 0;  // allocation of late
  std::uint64_t caught_up_at_ = 0;
  std::uint64_t faded_at_ = 0;
};

}  // namespace cairn
