#include "cairn/evict/slot_queue.h"

#include <limits>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

Result<SlotQueue> SlotQueue::create(const PolicyView& view, std::uint32_t segments) {
  constexpr std::uint64_t kMaxLanes = std::uint64_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  if (std::uint64_t{segments} * view.class_count > kMaxLanes) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(view.class_count, " eviction classes are more than the ", kMaxLanes / segments,
                        " that this policy can order; use fewer tenants, or another policy"));
  }
  Result<PageArray<EvictionClass>> lanes = PageArray<EvictionClass>::create(view.capacity);
  if (!lanes) {
    return Unexpected(std::move(lanes).error());
  }
  PolicyView inner = view;
  inner.class_count = segments * view.class_count;
  inner.classes = Column<EvictionClass>(lanes->data(), sizeof(EvictionClass));
  Result<TickQueue> queue = TickQueue::create(inner);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  SlotQueue made(view, segments, *std::move(lanes), *std::move(queue));
  if (view.leaves_first) {
    Result<LineageForest> forest = LineageForest::create(view);
    if (!forest) {
      return Unexpected(std::move(forest).error());
    }
    made.forest_ = *std::move(forest);
  }
  return made;
}

SlotQueue::SlotQueue(const PolicyView& view, std::uint32_t segments, PageArray<EvictionClass> lanes, TickQueue queue)
    : class_count_(view.class_count),
      classes_(view.classes),
      lanes_(std::move(lanes)),
      queue_(std::move(queue)),
      counts_(segments) {
  CAIRN_CHECK(!view.leaves_first || view.parents != nullptr, "leaves first takes a way to find parents");
}

void SlotQueue::set_lane(SlotId slot, Segment segment) {
  lanes_[index_of(slot)] = static_cast<EvictionClass>(segment * class_count_ + index_of(classes_[index_of(slot)]));
}

void SlotQueue::place(SlotId slot, Segment new_segment, std::uint64_t tick) {
  CAIRN_DCHECK(!contains(slot) && tick != 0, "a place is given to a slot that is not held");
  if (is_known(slot)) {
    --counts_[segment(slot)];
  }
  ++counts_[new_segment];
  set_lane(slot, new_segment);
  queue_.set_tick(slot, tick);
}

void SlotQueue::move(SlotId slot, Segment new_segment, std::uint64_t tick) {
  CAIRN_DCHECK(contains(slot) && tick != 0, "only a held slot is moved");
  const bool queued = queue_.contains(slot);
  if (queued) {
    queue_.erase(slot);
  }
  --counts_[segment(slot)];
  ++counts_[new_segment];
  set_lane(slot, new_segment);
  queue_.set_tick(slot, tick);
  if (queued) {
    queue_.push(slot);
  }
}

void SlotQueue::reclass(SlotId slot, EvictionClass& of_slot, EvictionClass to) {
  CAIRN_DCHECK(contains(slot), "only a held slot changes its class this way");
  const bool queued = queue_.contains(slot);
  if (queued) {
    queue_.erase(slot);
  }
  of_slot = to;
  set_lane(slot, segment(slot));
  if (queued) {
    queue_.push(slot);
  }
}

void SlotQueue::insert(SlotId slot, SlotId likely_parent) {
  CAIRN_DCHECK(is_known(slot) && !contains(slot), "a slot with a place becomes evictable once");
  set_lane(slot, segment(slot));  // the class may be another since the place was given
  ++size_;
  if (!forest_) {
    queue_.push(slot);
    return;
  }
  const auto [is_leaf, no_longer_leaf] = forest_->insert(slot, forest_->parent_of(slot, likely_parent));
  if (no_longer_leaf != kNoSlot) {
    queue_.erase(no_longer_leaf);
  }
  if (is_leaf) {
    queue_.push(slot);
  }
}

void SlotQueue::remove(SlotId slot) {
  CAIRN_DCHECK(contains(slot), "only a held slot is removed");
  --size_;
  if (!forest_) {
    queue_.erase(slot);
    return;
  }
  const auto [was_leaf, new_leaf] = forest_->remove(slot);
  if (was_leaf) {
    queue_.erase(slot);
  }
  if (new_leaf != kNoSlot) {
    queue_.push(new_leaf);
  }
}

void SlotQueue::forget(SlotId slot) {
  if (is_known(slot)) {
    --counts_[segment(slot)];
    queue_.set_tick(slot, 0);
  }
  if (forest_) {
    const SlotId new_leaf = forest_->forget(slot);
    if (new_leaf != kNoSlot) {
      queue_.push(new_leaf);
    }
  }
}

SlotId SlotQueue::front(Segment segment, ClassRange classes, const Veto& veto) {
  const std::uint32_t base = segment * class_count_;
  const auto lane = [&](std::uint32_t c) { return base + (c < class_count_ ? c : class_count_); };
  return queue_.front({lane(classes.first), lane(classes.last)}, veto);
}

std::size_t SlotQueue::bytes() const {
  return lanes_.bytes() + queue_.bytes() + counts_.size() * sizeof(counts_[0]) + (forest_ ? forest_->bytes() : 0);
}

void SlotQueue::prefetch(SlotId slot) const {
  queue_.prefetch(slot);
  if (forest_) {
    forest_->prefetch(slot);
  }
}

}  // namespace cairn
