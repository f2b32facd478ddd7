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

// Counts from the first key on by asking about more and more of them: a pool prepares for all the keys it is asked about,
// and most questions are answered by the first few.
template <typename Count>
std::uint32_t count_from_first(std::span<const BlockKey> keys, Count count) {
  std::uint32_t total = 0;
  for (std::size_t asked = 8; !keys.empty(); asked *= 2) {
    const std::span<const BlockKey> some = keys.first(std::min(asked, keys.size()));
    const std::uint32_t counted = count(some);
    total += counted;
    if (counted < some.size()) {
      break;
    }
    keys = keys.subspan(some.size());
  }
  return total;
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
    std::uint32_t blocks =
        count_from_first(keys, [&](std::span<const BlockKey> some) { return tiers_[i]->pool()->count_prefix(some); });
    if (blocks == 0) {
      continue;
    }
    // Up to where a nearer tier begins to have them again. One that got the first key just now does not matter.
    for (std::uint32_t nearer = 0; nearer < i && blocks > 1; ++nearer) {
      blocks = 1 + count_from_first(keys.subspan(1, blocks - 1), [&](std::span<const BlockKey> some) {
                 return tiers_[nearer]->pool()->count_absent(some);
               });
    }
    return {.level = tiers_[i]->level(), .blocks = blocks};
  }
  return {};
}

}  // namespace cairn
