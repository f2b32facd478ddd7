// What comes up from lower tiers for a sequence, and from where. Pure: facts in, a plan out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/sim/profile.h"

namespace cairn::sim {

// The tiers below G1, the nearest one 0.
using TierIndex = std::uint32_t;

struct LoadPlan {
  std::vector<TierIndex> source;  // of each block, from the first on

  [[nodiscard]] std::size_t blocks() const { return source.size(); }
  [[nodiscard]] std::size_t blocks_from(TierIndex tier) const {
    return static_cast<std::size_t>(std::ranges::count(source, tier));
  }
};

// Blocks from the first on, each from the nearest tier that has it, up to the first that none has: what stands behind a
// hole is of no use. `nearest(i)` is that tier for block i, if any.
template <typename Nearest>
[[nodiscard]] LoadPlan plan_load(std::size_t wanted, const Nearest& nearest) {
  LoadPlan plan;
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::optional<TierIndex> tier = nearest(i);
    if (!tier) {
      break;
    }
    plan.source.push_back(*tier);
  }
  return plan;
}

// How many of the planned blocks are loaded where there is room for `room`: as many as fit, where the original loads all
// or nothing.
[[nodiscard]] constexpr std::size_t blocks_to_load(Profile profile, std::size_t planned, std::size_t room) {
  if (profile == Profile::kSeed && planned > room) {
    return 0;
  }
  return std::min(planned, room);
}

}  // namespace cairn::sim
