// SegmentedPolicy: what policies have in common that rank slots by segment and tick (slot_queue.h). One says where a slot
// goes when it becomes evictable, and which is the next victim; the rest is here.
#pragma once

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/slot_queue.h"

namespace cairn {

class SegmentedPolicy : public EvictionPolicy {
 public:
  void insert(std::span<const SlotId> slots) final;
  void remove(std::span<const SlotId> slots) final;
  void touch(std::span<const SlotId> slots) override;
  void reclass(SlotId slot, EvictionClass& of_slot, EvictionClass to) final { queue_.reclass(slot, of_slot, to); }
  void forget(std::span<const SlotId> slots) final;
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<SlotId> out) final;
  [[nodiscard]] bool leaves_first() const final { return queue_.leaves_first(); }
  [[nodiscard]] bool holds_below(SlotId slot) const final { return queue_.holds_below(slot); }
  [[nodiscard]] std::uint32_t size() const final { return queue_.size(); }
  [[nodiscard]] bool contains(SlotId slot) const final { return queue_.contains(slot); }
  [[nodiscard]] std::size_t bytes() const override { return queue_.bytes(); }

 protected:
  SegmentedPolicy(const PolicyView& view, SlotQueue queue) : keys_(view.keys), queue_(std::move(queue)) {}

  [[nodiscard]] const BlockKey& key(SlotId slot) const { return keys_[index_of(slot)]; }
  [[nodiscard]] SlotQueue& queue() { return queue_; }
  [[nodiscard]] const SlotQueue& queue() const { return queue_; }

  // Gives the slot its place after a use of its block: it is about to become evictable, or was touched. It is known to
  // the queue where its block was used before, and new where it was forgotten since.
  virtual void place(SlotId slot) = 0;
  // The next victim, which is still held; kNoSlot where there is none.
  [[nodiscard]] virtual SlotId choose(ClassRange classes, const Veto& veto) = 0;
  // It is about to be placed: fetches what that takes.
  virtual void prefetch(SlotId slot) const { queue_.prefetch(slot); }
  // It was chosen and is held no more; its key is still there.
  virtual void gave_up(SlotId /*slot*/) {}

  // Of two fronts the one of the lower class, `preferred` where that is the same; either may be kNoSlot.
  [[nodiscard]] SlotId lower_class(SlotId preferred, SlotId other) const;

 private:
  Column<BlockKey> keys_;
  SlotQueue queue_;
};

}  // namespace cairn
