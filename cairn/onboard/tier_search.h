// TierSearch: where the keys of a list are, stretch by stretch: which tiers can be asked at present, and which of them is
// the nearest that has a key.
//
// Asks:     the registry, which knows for all tiers at once. What it says may be gone when its pool is asked: whoever wants
//           blocks has to hold them.
// Owner:    made for one question; the registry outlives it. Threads: one.
// Costs:    one lock a stretch, one lookup a key; allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/pool/block_registry.h"
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
  explicit TierSearch(const BlockRegistry& registry) : registry_(registry) {}

  // Looks at this tier too. None, or the engine's own: not.
  void add(const Tier* tier);
  // From the first key on.
  [[nodiscard]] Stretch next(std::span<const BlockKey> keys) const;

 private:
  const BlockRegistry& registry_;
  TierSet among_;
};

}  // namespace cairn
