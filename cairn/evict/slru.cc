#include "cairn/evict/slru.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> SlruPolicy::create(const PolicyView& view) {
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(view, kSegments));
  return std::unique_ptr<EvictionPolicy>(new SlruPolicy(view, std::move(queue)));
}

SlruPolicy::SlruPolicy(const PolicyView& view, BlockQueue queue)
    : SegmentedPolicy(view, std::move(queue)),
      class_count_(view.class_count),
      most_protected_(view.capacity - view.capacity / 5) {}

void SlruPolicy::place(BlockId block_id) {
  queue().place(block_id, queue().is_known(block_id) ? kProtected : kProbation, queue().next_tick());
  if (queue().count(kProtected) <= most_protected_) {
    return;
  }
  // If all protected blocks are in use, there are too many for a while.
  const BlockId demoted = queue().front(kProtected, {0, class_count_}, {});
  if (demoted != kNoBlock) {
    queue().move(demoted, kProbation, queue().next_tick());
  }
}

BlockId SlruPolicy::choose(ClassRange classes, const Veto& veto) {
  return lower_class(queue().front(kProbation, classes, veto), queue().front(kProtected, classes, veto));
}

}  // namespace cairn
