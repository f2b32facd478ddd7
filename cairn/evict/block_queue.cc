#include "cairn/evict/block_queue.h"

#include <limits>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

Result<BlockQueue> BlockQueue::create(const PolicyView& view, std::uint32_t segments) {
  constexpr std::uint64_t kMaxLanes = std::uint64_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  if (std::uint64_t{segments} * view.class_count > kMaxLanes) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(view.class_count, " eviction classes are more than the ", kMaxLanes / segments,
                        " that this policy can order; use fewer tenants, or another policy"));
  }
  CAIRN_TRY_ASSIGN(PageArray<EvictionClass> lanes, PageArray<EvictionClass>::create(view.capacity));
  PolicyView inner = view;
  inner.class_count = segments * view.class_count;
  inner.classes = Column<EvictionClass>(lanes.data(), sizeof(EvictionClass));
  CAIRN_TRY_ASSIGN(TickQueue queue, TickQueue::create(inner));
  BlockQueue made(view, segments, std::move(lanes), std::move(queue));
  if (view.leaves_first) {
    CAIRN_TRY_ASSIGN(made.forest_, LineageForest::create(view));
  }
  return made;
}

BlockQueue::BlockQueue(const PolicyView& view, std::uint32_t segments, PageArray<EvictionClass> lanes, TickQueue queue)
    : class_count_(view.class_count),
      classes_(view.classes),
      lanes_(std::move(lanes)),
      queue_(std::move(queue)),
      counts_(segments) {
  CAIRN_CHECK(!view.leaves_first || view.parents != nullptr, "leaves_first needs a ParentFinder");
}

void BlockQueue::set_lane(BlockId block_id, Segment segment) {
  lanes_[index_of(block_id)] =
      static_cast<EvictionClass>(segment * class_count_ + index_of(classes_[index_of(block_id)]));
}

void BlockQueue::place(BlockId block_id, Segment new_segment, std::uint64_t tick) {
  CAIRN_DCHECK(!contains(block_id) && tick != 0, "only a block outside the queue is placed");
  if (is_known(block_id)) {
    --counts_[segment(block_id)];
  }
  ++counts_[new_segment];
  set_lane(block_id, new_segment);
  queue_.set_tick(block_id, tick);
}

void BlockQueue::move(BlockId block_id, Segment new_segment, std::uint64_t tick) {
  CAIRN_DCHECK(contains(block_id) && tick != 0, "only a block in the queue is moved");
  const bool queued = queue_.contains(block_id);
  if (queued) {
    queue_.erase(block_id);
  }
  --counts_[segment(block_id)];
  ++counts_[new_segment];
  set_lane(block_id, new_segment);
  queue_.set_tick(block_id, tick);
  if (queued) {
    queue_.push(block_id);
  }
}

void BlockQueue::reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) {
  CAIRN_DCHECK(contains(block_id), "only a block in the queue is reclassed");
  const bool queued = queue_.contains(block_id);
  if (queued) {
    queue_.erase(block_id);
  }
  of_block = to;
  set_lane(block_id, segment(block_id));
  if (queued) {
    queue_.push(block_id);
  }
}

void BlockQueue::insert(BlockId block_id, BlockId likely_parent) {
  CAIRN_DCHECK(is_known(block_id) && !contains(block_id), "a block with a place becomes evictable once");
  set_lane(block_id, segment(block_id));  // the class may have changed since the block was placed
  ++size_;
  if (!forest_) {
    queue_.push(block_id);
    return;
  }
  const auto [is_leaf, no_longer_leaf] = forest_->insert(block_id, forest_->parent_of(block_id, likely_parent));
  if (no_longer_leaf != kNoBlock) {
    queue_.erase(no_longer_leaf);
  }
  if (is_leaf) {
    queue_.push(block_id);
  }
}

void BlockQueue::remove(BlockId block_id) {
  CAIRN_DCHECK(contains(block_id), "only a block in the queue is removed");
  --size_;
  if (!forest_) {
    queue_.erase(block_id);
    return;
  }
  const auto [was_leaf, new_leaf] = forest_->remove(block_id);
  if (was_leaf) {
    queue_.erase(block_id);
  }
  if (new_leaf != kNoBlock) {
    queue_.push(new_leaf);
  }
}

void BlockQueue::forget(BlockId block_id) {
  if (is_known(block_id)) {
    --counts_[segment(block_id)];
    queue_.set_tick(block_id, 0);
  }
  if (forest_) {
    const BlockId new_leaf = forest_->forget(block_id);
    if (new_leaf != kNoBlock) {
      queue_.push(new_leaf);
    }
  }
}

BlockId BlockQueue::front(Segment segment, ClassRange classes, const Veto& veto) {
  const std::uint32_t base = segment * class_count_;
  const auto lane = [&](std::uint32_t c) { return base + (c < class_count_ ? c : class_count_); };
  return queue_.front({lane(classes.first), lane(classes.last)}, veto);
}

std::size_t BlockQueue::bytes() const {
  return lanes_.bytes() + queue_.bytes() + counts_.size() * sizeof(counts_[0]) + (forest_ ? forest_->bytes() : 0);
}

void BlockQueue::prefetch(BlockId block_id) const {
  queue_.prefetch(block_id);
  if (forest_) {
    forest_->prefetch(block_id);
  }
}

}  // namespace cairn
