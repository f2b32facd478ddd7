#include "cairn/evict/lineage.h"

#include "cairn/base/check.h"
#include "cairn/evict/lookahead.h"

namespace cairn {

Result<std::unique_ptr<EvictionPolicy>> LineagePolicy::create(const PolicyView& view, Rule rule) {
  Result<LineageForest> forest = LineageForest::create(view);
  if (!forest) {
    return Unexpected(std::move(forest).error());
  }
  Result<TickQueue> leaves = TickQueue::create(view);
  if (!leaves) {
    return Unexpected(std::move(leaves).error());
  }
  return std::unique_ptr<EvictionPolicy>(new LineagePolicy(view, rule, *std::move(forest), *std::move(leaves)));
}

LineagePolicy::LineagePolicy(const PolicyView& view, Rule rule, LineageForest forest, TickQueue leaves)
    : rule_(rule), forest_(std::move(forest)), leaves_(std::move(leaves)) {
  CAIRN_CHECK(view.parents != nullptr, "the lineage policy is given a way to find parents");
}

void LineagePolicy::insert(std::span<const SlotId> slots) {
  std::size_t next = 0;
  for_each_prefetched(
      slots,
      [this](SlotId slot) {
        forest_.prefetch(slot);
        leaves_.prefetch(slot);
      },
      [&](SlotId slot) {
        ++next;
        leaves_.set_tick(slot, leaves_.next_tick());
        const auto [is_leaf, no_longer_leaf] =
            forest_.insert(slot, forest_.parent_of(slot, next < slots.size() ? slots[next] : kNoSlot));
        if (no_longer_leaf != kNoSlot) {
          leaves_.erase(no_longer_leaf);
        }
        if (is_leaf) {
          leaves_.push(slot);
        }
      });
  size_ += static_cast<std::uint32_t>(slots.size());
}

void LineagePolicy::remove(std::span<const SlotId> slots) {
  for_each_prefetched(
      slots, [this](SlotId slot) { forest_.prefetch(slot); },
      [this](SlotId slot) {
        const auto [was_leaf, new_leaf] = forest_.remove(slot);
        if (was_leaf) {
          leaves_.erase(slot);
        }
        became_leaf(new_leaf);
      });
  size_ -= static_cast<std::uint32_t>(slots.size());
}

void LineagePolicy::reclass(SlotId slot, EvictionClass& of_slot, EvictionClass to) {
  const bool is_leaf = leaves_.contains(slot);
  if (is_leaf) {
    leaves_.erase(slot);
  }
  of_slot = to;
  if (is_leaf) {
    leaves_.push(slot);
  }
}

void LineagePolicy::forget(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) {
    became_leaf(forest_.forget(slot));
  }
}

// One by one: each victim may make a leaf of its parent, which is then often the next.
std::size_t LineagePolicy::evict(ClassRange classes, const Veto& veto, std::span<SlotId> out) {
  for (std::size_t evicted = 0; evicted < out.size(); ++evicted) {
    if (leaves_.pop(classes, veto, out.subspan(evicted, 1)) == 0) {
      return evicted;
    }
    --size_;
    became_leaf(forest_.remove(out[evicted]).new_leaf);
  }
  return out.size();
}

void LineagePolicy::became_leaf(SlotId slot) {
  if (slot == kNoSlot) {
    return;
  }
  if (rule_ == Rule::kFifo) {
    leaves_.set_tick(slot, leaves_.next_tick());
  }
  leaves_.push(slot);
}

}  // namespace cairn
