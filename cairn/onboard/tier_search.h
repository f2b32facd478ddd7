// TierSearch: where the keys of a list are, stretch by stretch: which tiers can be asked at present, and which of them is
// the nearest that has a key.
//
// Owner:    made for one question; the tiers outlive it. Threads: one; the pools it asks are safe from any.
// Costs:    a few locks for each tier asked in a stretch, a lookup for each key and tier; allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

// Whether a copy over this link has a chance now: it is not paused, and neither tier is out, or the time to try it again
// has come.
[[nodiscard]] bool can_be_tried(const TierLink* link, TimePoint now);

// Keys that follow each other and are found in the same tier.
struct Stretch {
  CacheLevel level = CacheLevel::kG1;
  std::uint32_t blocks = 0;  // 0: the first key is nowhere
};

class TierSearch {
 public:
  // Looks at this tier too, after those that were added before: the nearest comes first. None, or the engine's own: not.
  void add(const Tier* tier);
  // From the first key on.
  [[nodiscard]] Stretch next(std::span<const BlockKey> keys) const;

 private:
  std::array<const Tier*, kCacheLevels> tiers_ = {};
  std::uint32_t count_ = 0;
};

}  // namespace cairn
