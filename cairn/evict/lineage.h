// LineagePolicy: only leaves are evicted, so that no block is kept whose parent, without which it is of no use, is
// gone.
//
// Rules:  kTick  among leaves the one released longest ago; a parent that becomes a leaf takes the place of its own
// time
//         kFifo  among leaves the one that has been a leaf longest; a parent that becomes one goes to the end
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

  void insert(std::span<const SlotId> slots) override;
  void remove(std::span<const SlotId> slots) override;
  void reclass(SlotId slot, EvictionClass& of_slot, EvictionClass to) override;
  void forget(std::span<const SlotId> slots) override;
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<SlotId> out) override;
  [[nodiscard]] bool leaves_first() const override { return true; }
  [[nodiscard]] bool holds_below(SlotId slot) const override { return forest_.holds_below(slot); }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  [[nodiscard]] bool contains(SlotId slot) const override { return forest_.contains(slot); }
  [[nodiscard]] std::size_t bytes() const override { return forest_.bytes() + leaves_.bytes(); }

 private:
  LineagePolicy(const PolicyView& view, Rule rule, LineageForest forest, TickQueue leaves);

  void became_leaf(SlotId slot);

  const Rule rule_;
  LineageForest forest_;
  TickQueue leaves_;  // ticks are kept for all evictable slots: when each was released
  std::uint32_t size_ = 0;
};

}  // namespace cairn
