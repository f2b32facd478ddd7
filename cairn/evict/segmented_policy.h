// SegmentedPolicy: the common part of policies that rank blocks by segment and tick (block_queue.h). A derived policy
// says where a block is placed when it becomes evictable, and which block is the next victim.
#pragma once

#include "cairn/evict/block_queue.h"
#include "cairn/evict/eviction_policy.h"

namespace cairn {

class SegmentedPolicy : public EvictionPolicy {
 public:
  void insert(std::span<const BlockId> block_ids) final;
  void remove(std::span<const BlockId> block_ids) final;
  void touch(std::span<const BlockId> block_ids) override;
  void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) final {
    queue_.reclass(block_id, of_block, to);
  }
  void forget(std::span<const BlockId> block_ids) final;
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) final;
  [[nodiscard]] bool leaves_first() const final { return queue_.leaves_first(); }
  [[nodiscard]] bool holds_below(BlockId block_id) const final { return queue_.holds_below(block_id); }
  [[nodiscard]] std::uint32_t size() const final { return queue_.size(); }
  [[nodiscard]] bool contains(BlockId block_id) const final { return queue_.contains(block_id); }
  [[nodiscard]] std::size_t bytes() const override { return queue_.bytes(); }

 protected:
  SegmentedPolicy(const PolicyView& view, BlockQueue queue) : keys_(view.keys), queue_(std::move(queue)) {}

  [[nodiscard]] const BlockKey& key(BlockId block_id) const { return keys_[index_of(block_id)]; }
  [[nodiscard]] BlockQueue& queue() { return queue_; }
  [[nodiscard]] const BlockQueue& queue() const { return queue_; }

  // Gives the block its place after a use: it is about to become evictable, or was touched. The queue knows the block
  // if it was used before and not forgotten since.
  virtual void place(BlockId block_id) = 0;
  // The next victim, still in the queue; kNoBlock if there is none.
  [[nodiscard]] virtual BlockId choose(ClassRange classes, const Veto& veto) = 0;
  // Fetches what place() will read.
  virtual void prefetch(BlockId block_id) const { queue_.prefetch(block_id); }
  // The victim left the queue; its key is still valid.
  virtual void on_evicted(BlockId /*block_id*/) {}

  // The block of the lower class, or `preferred` if the classes are equal. Either may be kNoBlock.
  [[nodiscard]] BlockId lower_class(BlockId preferred, BlockId other) const;

 private:
  Column<BlockKey> keys_;
  BlockQueue queue_;
};

}  // namespace cairn
