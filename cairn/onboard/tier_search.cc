#include "cairn/onboard/tier_search.h"

#include <algorithm>

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
    tiers_[count_++] = tier;
  }
}

Stretch TierSearch::next(std::span<const BlockKey> keys) const {
  for (std::uint32_t i = 0; i < count_; ++i) {
    std::uint32_t blocks = tiers_[i]->pool()->count_prefix(keys);
    if (blocks == 0) {
      continue;
    }
    // Up to where a nearer tier begins to have them again. One that got the first key just now does not matter.
    for (std::uint32_t nearer = 0; nearer < i && blocks > 1; ++nearer) {
      blocks = 1 + std::min(blocks - 1, tiers_[nearer]->pool()->count_absent(keys.subspan(1, blocks - 1)));
    }
    return {.level = tiers_[i]->level(), .blocks = blocks};
  }
  return {};
}

}  // namespace cairn
