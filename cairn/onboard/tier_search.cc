#include "cairn/onboard/tier_search.h"

#include <optional>

namespace cairn {

void TierSearch::add(const Tier* tier) {
  if (tier != nullptr && tier->pool() != nullptr) {
    among_.insert(tier->level());
  }
}

Stretch TierSearch::next(std::span<const BlockKey> keys) const {
  const std::optional<BlockRegistry::Run> run = registry_.nearest_run(keys, among_);
  return run ? Stretch{.level = run->tier, .blocks = run->keys} : Stretch{};
}

}  // namespace cairn
