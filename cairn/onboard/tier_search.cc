#include "cairn/onboard/tier_search.h"

#include <optional>

namespace cairn {

namespace {

bool can_be_tried(const Tier& tier, TierUse use, TimePoint now) {
  if (tier.is_up(use)) {
    return true;
  }
  const std::optional<TimePoint> trial = tier.report(use).next_trial;
  return trial && *trial <= now;
}

}  // namespace

bool can_be_tried(const TierLink* link, TimePoint now) {
  return link != nullptr && !link->is_paused() && can_be_tried(link->from(), TierUse::kReading, now) &&
         (link->is_up() || can_be_tried(link->to(), TierUse::kWriting, now));
}

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
