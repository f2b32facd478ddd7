// FifoPolicy: the block that was registered first goes first. A block that is used again keeps its place.
#pragma once

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/tick_queue.h"

namespace cairn {

class FifoPolicy final : public EvictionPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);

  void insert(std::span<const SlotId> slots) override;
  void remove(std::span<const SlotId> slots) override { queue_.erase(slots); }
  void forget(SlotId slot) override { queue_.set_tick(slot, 0); }
  [[nodiscard]] SlotId evict(ClassRange classes, const Veto& veto) override { return queue_.pop(classes, veto); }
  [[nodiscard]] std::uint32_t size() const override { return queue_.size(); }
  [[nodiscard]] bool contains(SlotId slot) const override { return queue_.contains(slot); }
  [[nodiscard]] std::size_t bytes() const override { return queue_.bytes(); }

 private:
  explicit FifoPolicy(TickQueue queue) : queue_(std::move(queue)) {}

  TickQueue queue_;  // a slot's tick: when its block first became evictable
};

}  // namespace cairn
