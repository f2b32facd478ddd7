#include "cairn/evict/arc.h"

#include <algorithm>
#include <utility>

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> ArcPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(view, kSegments));
  CAIRN_TRY_ASSIGN(GhostLists ghosts, GhostLists::create(view.capacity, kSegments, view.seed));
  return std::unique_ptr<EvictionPolicy>(new ArcPolicy(view, std::move(queue), std::move(ghosts)));
}

ArcPolicy::ArcPolicy(const PolicyView& view, BlockQueue queue, GhostLists ghosts)
    : SegmentedPolicy(view, std::move(queue)), capacity_(view.capacity), ghosts_(std::move(ghosts)) {}

void ArcPolicy::place(BlockId block_id) {
  BlockQueue::Segment segment = kAgain;
  if (!queue().is_known(block_id)) {
    const std::uint32_t once = ghosts_.size(kOnce);
    const std::uint32_t again = ghosts_.size(kAgain);
    const std::optional<GhostLists::List> returned = ghosts_.take(key(block_id));
    if (!returned) {
      segment = kOnce;
    } else if (*returned == kOnce) {
      target_ = std::min<double>(capacity_, target_ + std::max(1.0, double(again) / once));
    } else {
      target_ = std::max(0.0, target_ - std::max(1.0, double(once) / again));
    }
  }
  queue().place(block_id, segment, queue().next_tick());
}

BlockId ArcPolicy::choose(ClassRange classes, const Veto& veto) {
  const BlockId once = queue().front(kOnce, classes, veto);
  const BlockId again = queue().front(kAgain, classes, veto);
  return queue().count(kOnce) > target_ ? lower_class(once, again) : lower_class(again, once);
}

void ArcPolicy::on_evicted(BlockId block_id) {
  ghosts_.push(queue().segment(block_id), key(block_id));
  // Blocks used once and their ghosts together are no more than the pool has blocks.
  while (ghosts_.size(kOnce) > 0 && queue().count(kOnce) + ghosts_.size(kOnce) > capacity_) {
    ghosts_.drop_oldest(kOnce);
  }
}

}  // namespace cairn
