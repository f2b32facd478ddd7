// ArcPolicy: recency against frequency, balanced by what the evicted blocks turn out to have been worth (Megiddo and
// Modha, FAST 2003).
//
// Does:     blocks that were used once, and those used again, each the oldest release first. Keys of evicted ones are
//           remembered, as many as the pool has blocks: when such a block comes back, the part it went from is given
//           more room.
// Differs:  from the paper in that a victim is chosen before it is known what comes in its place, as the pool does it:
//           a block that comes back counts for the evictions after it.
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
  void gave_up(BlockId block_id) override;

 private:
  enum : BlockQueue::Segment { kOnce, kAgain, kSegments };  // of ghosts too

  ArcPolicy(const PolicyView& view, BlockQueue queue, GhostLists ghosts);

  const std::uint32_t capacity_;
  GhostLists ghosts_;
  double target_ = 0;  // of the blocks that were used once
};

}  // namespace cairn
