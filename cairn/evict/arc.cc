#include "cairn/evict/arc.h"

#include <algorithm>
#include <utility>

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> ArcPolicy::create(const PolicyView& view) {
  Result<SlotQueue> queue = SlotQueue::create(view, kSegments);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  Result<GhostLists> ghosts = GhostLists::create(view.capacity, kSegments, view.seed);
  if (!ghosts) {
    return Unexpected(std::move(ghosts).error());
  }
  return std::unique_ptr<EvictionPolicy>(new ArcPolicy(view, *std::move(queue), *std::move(ghosts)));
}

ArcPolicy::ArcPolicy(const PolicyView& view, SlotQueue queue, GhostLists ghosts)
    : SegmentedPolicy(view, std::move(queue)), capacity_(view.capacity), ghosts_(std::move(ghosts)) {}

void ArcPolicy::place(SlotId slot) {
  SlotQueue::Segment segment = kAgain;
  if (!queue().is_known(slot)) {
    const std::uint32_t once = ghosts_.size(kOnce);
    const std::uint32_t again = ghosts_.size(kAgain);
    const std::optional<GhostLists::List> returned = ghosts_.take(key(slot));
    if (!returned) {
      segment = kOnce;
    } else if (*returned == kOnce) {
      target_ = std::min<double>(capacity_, target_ + std::max(1.0, double(again) / once));
    } else {
      target_ = std::max(0.0, target_ - std::max(1.0, double(once) / again));
    }
  }
  queue().place(slot, segment, queue().next_tick());
}

SlotId ArcPolicy::choose(ClassRange classes, const Veto& veto) {
  const SlotId once = queue().front(kOnce, classes, veto);
  const SlotId again = queue().front(kAgain, classes, veto);
  return queue().count(kOnce) > target_ ? lower_class(once, again) : lower_class(again, once);
}

void ArcPolicy::gave_up(SlotId slot) {
  ghosts_.push(queue().segment(slot), key(slot));
  // Blocks used once and their ghosts together are no more than the pool has slots.
  while (ghosts_.size(kOnce) > 0 && queue().count(kOnce) + ghosts_.size(kOnce) > capacity_) {
    ghosts_.drop_oldest(kOnce);
  }
}

}  // namespace cairn
