// ArcPolicy: recency against frequency, balanced by which evicted blocks return (Megiddo and Modha, FAST 2003).
//
// Blocks that were used once and blocks that were used again are kept apart, in each part the oldest release first. The
// keys of evicted blocks are remembered, as many as the pool has blocks: when one returns, the part it was evicted from
// gets more room.
//
// Unlike in the paper, a victim is chosen before it is known which block replaces it: a returning key affects the
// evictions after it.
#pragma once

#include "cairn/evict/ghost_lists.h"
#include "cairn/evict/segmented_policy.h"

namespace cairn {

class ArcPolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);
  [[nodiscard]] std::size_t bytes() const override { return SegmentedPolicy::bytes() + ghosts_.bytes(); }

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;
  void on_evicted(BlockId block_id) override;

 private:
  enum : BlockQueue::Segment { kOnce, kAgain, kSegments };  // of ghosts too

  ArcPolicy(const PolicyView& view, BlockQueue queue, GhostLists ghosts);

  const std::uint32_t capacity_;
  GhostLists ghosts_;
  double target_ = 0;  // of the blocks that were used once
};

}  // namespace cairn
