// LruPolicy: evicts the block that was released longest ago.
#pragma once

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/tick_queue.h"

namespace cairn {

class LruPolicy final : public EvictionPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);

  void insert(std::span<const BlockId> block_ids) override { queue_.push_newest(block_ids); }
  void remove(std::span<const BlockId> block_ids) override { queue_.erase(block_ids); }
  void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) override {
    queue_.erase(block_id);
    of_block = to;
    queue_.push(block_id);
  }
  void forget(std::span<const BlockId> /*block_ids*/) override {}
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) override {
    return queue_.pop(classes, veto, out);
  }
  [[nodiscard]] std::uint32_t size() const override { return queue_.size(); }
  [[nodiscard]] bool contains(BlockId block_id) const override { return queue_.contains(block_id); }
  [[nodiscard]] std::size_t bytes() const override { return queue_.bytes(); }

 private:
  explicit LruPolicy(TickQueue queue) : queue_(std::move(queue)) {}

  TickQueue queue_;  // the tick of a block: when it was last released
};

}  // namespace cairn
