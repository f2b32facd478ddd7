// TierSearch: where the keys of a list are, stretch by stretch: which of the tiers that may be asked is the nearest that
// has a key.
//
// Asks:     the registry, which knows for all tiers at once. What it says may be gone when its pool is asked: whoever wants
//           blocks has to hold them.
// Owner:    made for one question; the registry outlives it. Threads: one.
// Costs:    one lock a stretch, one lookup a key; allocates nothing.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/base/ids.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tier/tier.h"

namespace cairn {

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
