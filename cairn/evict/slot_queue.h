// SlotQueue: the evictable slots of a policy that ranks them by a segment and, within it, by a tick.
//
// Does:     keeps a queue for each segment and class. A slot's place (segment and tick) is given by the policy and stays
//           with it, in the queue or out of it, until the slot is forgotten. Where the view asks for leaves first, only
//           slots without an evictable block below them can be had; the others come in at their places as they become
//           leaves.
// Owner:    a policy. Threads: none.
// Costs:    those of TickQueue and, with leaves first, LineageForest: 22 or 38.5 bytes a slot, taken once.
// Fails:    create() where segments and classes are more than can be told apart, or memory is short.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/page_array.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/lineage_forest.h"
#include "cairn/evict/tick_queue.h"

namespace cairn {

class SlotQueue {
 public:
  using Segment = std::uint32_t;

  [[nodiscard]] static Result<SlotQueue> create(const PolicyView& view, std::uint32_t segments);

  // Later than every tick before it.
  [[nodiscard]] std::uint64_t next_tick() { return queue_.next_tick(); }

  // Whether the slot has a place: it was given one since it was last forgotten.
  [[nodiscard]] bool is_known(SlotId slot) const { return queue_.tick(slot) != 0; }
  [[nodiscard]] std::uint64_t tick(SlotId slot) const { return queue_.tick(slot); }
  [[nodiscard]] Segment segment(SlotId slot) const { return index_of(lanes_[index_of(slot)]) / class_count_; }
  // Slots with a place in the segment, evictable or not.
  [[nodiscard]] std::uint32_t count(Segment segment) const { return counts_[segment]; }

  // Gives a slot its place. Requires: not held; the tick is not 0.
  void place(SlotId slot, Segment segment, std::uint64_t tick);
  // The same for one that is held.
  void move(SlotId slot, Segment segment, std::uint64_t tick);
  // Its class is another from now on, as EvictionPolicy::reclass() has it. Requires: held.
  void reclass(SlotId slot, EvictionClass& of_slot, EvictionClass to);
  // From now on it can be had. Requires: known, not held. `likely_parent` may hold its parent; kNoSlot is no guess.
  void insert(SlotId slot, SlotId likely_parent);
  // Requires: held.
  void remove(SlotId slot);
  // The slot has no place any more. Requires: not held.
  void forget(SlotId slot);

  // The first one of the segment, of the lowest class in the range that has one without a veto; kNoSlot where none has.
  [[nodiscard]] SlotId front(Segment segment, ClassRange classes, const Veto& veto);
  // The last one of the segment and class; kNoSlot where there is none, or it has a veto.
  [[nodiscard]] SlotId back(Segment segment, std::uint32_t eviction_class, const Veto& veto) const {
    return queue_.back(segment * class_count_ + eviction_class, veto);
  }
  [[nodiscard]] std::uint32_t class_of(SlotId slot) const { return index_of(lanes_[index_of(slot)]) % class_count_; }

  [[nodiscard]] bool contains(SlotId slot) const { return forest_ ? forest_->contains(slot) : queue_.contains(slot); }
  [[nodiscard]] bool leaves_first() const { return forest_.has_value(); }
  // With leaves first: whether held slots hang below this one.
  [[nodiscard]] bool holds_below(SlotId slot) const { return forest_ && forest_->holds_below(slot); }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const;
  void prefetch(SlotId slot) const;

 private:
  SlotQueue(const PolicyView& view, std::uint32_t segments, PageArray<EvictionClass> lanes, TickQueue queue);

  void set_lane(SlotId slot, Segment segment);

  std::uint32_t class_count_;
  Column<EvictionClass> classes_;
  PageArray<EvictionClass> lanes_;  // what the queue takes for classes: segment * class_count_ + class
  TickQueue queue_;                 // the evictable ones or, with a forest, the leaves among them
  std::optional<LineageForest> forest_;
  std::vector<std::uint32_t> counts_;  // by segment
  std::uint32_t size_ = 0;
};

}  // namespace cairn
