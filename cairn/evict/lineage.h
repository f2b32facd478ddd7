// LineagePolicy: evicts leaves only, so that no block is kept whose parent, without which it is useless, is gone.
//
//     kTick  evicts the leaf that was released longest ago; a parent that becomes a leaf keeps its own time
//     kFifo  evicts the leaf that has been a leaf longest; a parent that becomes a leaf goes to the end
#pragma once

#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/lineage_forest.h"
#include "cairn/evict/tick_queue.h"

namespace cairn {

class LineagePolicy final : public EvictionPolicy {
 public:
  enum class Rule : std::uint8_t { kTick, kFifo };

  // Requires: view.parents is set.
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view, Rule rule);

  void insert(std::span<const BlockId> block_ids) override;
  void remove(std::span<const BlockId> block_ids) override;
  void reclass(BlockId block_id, EvictionClass& of_block, EvictionClass to) override;
  void forget(std::span<const BlockId> block_ids) override;
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) override;
  [[nodiscard]] bool leaves_first() const override { return true; }
  [[nodiscard]] bool holds_below(BlockId block_id) const override { return forest_.holds_below(block_id); }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] bool contains(BlockId block_id) const override { return forest_.contains(block_id); }
  [[nodiscard]] std::size_t bytes() const override { return forest_.bytes() + leaves_.bytes(); }

 private:
  LineagePolicy(const PolicyView& view, Rule rule, LineageForest forest, TickQueue leaves);

  void became_leaf(BlockId block_id);

  const Rule rule_;
  LineageForest forest_;
  TickQueue leaves_;  // all evictable blocks have a tick: the time of release
  std::uint32_t size_ = 0;
};

}  // namespace cairn
