// Plans which blocks of a sequence are loaded from the tiers below, and from which tier. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cairn::sim {

// A tier below G1; 0 is the nearest.
using TierIndex = std::uint32_t;

struct LoadPlan {
  std::vector<TierIndex> source;  // of each block, from the first one on

  [[nodiscard]] std::size_t blocks() const { return source.size(); }
  [[nodiscard]] std::size_t blocks_from(TierIndex tier) const {
    return static_cast<std::size_t>(std::ranges::count(source, tier));
  }
};

// Loads each of `count` blocks from the nearest tier that has it, up to the first block that no tier has: later blocks
// are of no use without it. `nearest(i)` returns the nearest tier that has block i, if any.
template <typename Nearest>
[[nodiscard]] LoadPlan plan_load(std::size_t count, const Nearest& nearest) {
  LoadPlan plan;
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<TierIndex> tier = nearest(i);
    if (!tier) {
      break;
    }
    plan.source.push_back(*tier);
  }
  return plan;
}

}  // namespace cairn::sim
