// LruPolicy: the block that was released longest ago goes first.
#pragma once

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/tick_queue.h"

namespace cairn {

class LruPolicy final : public EvictionPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);

  void insert(std::span<const SlotId> slots) override { queue_.push_newest(slots); }
  void remove(std::span<const SlotId> slots) override { queue_.erase(slots); }
  void reclass(SlotId slot, EvictionClass& of_slot, EvictionClass to) override {
    queue_.erase(slot);
    of_slot = to;
    queue_.push(slot);
  }
  void forget(std::span<const SlotId> /*slots*/) override {}
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<SlotId> out) override {
    return queue_.pop(classes, veto, out);
  }
  [[nodiscard]] std::uint32_t size() const override { return queue_.size(); }
  [[nodiscard]] bool contains(SlotId slot) const override { return queue_.contains(slot); }
  [[nodiscard]] std::size_t bytes() const override { return queue_.bytes(); }

 private:
  explicit LruPolicy(TickQueue queue) : queue_(std::move(queue)) {}

  TickQueue queue_;  // a slot's tick: when its block was last released
};

}  // namespace cairn
