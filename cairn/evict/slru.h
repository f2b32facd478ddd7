// SlruPolicy: protects blocks that were used again, up to four fifths of the pool.
//
// A new block is on probation. It is protected once it is used again; if there are too many protected blocks, the one
// that was released longest ago goes back on probation. Blocks on probation are evicted first, in each part the oldest
// release first.
#pragma once

#include "cairn/evict/segmented_policy.h"

namespace cairn {

class SlruPolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;

 private:
  enum : BlockQueue::Segment { kProbation, kProtected, kSegments };

  SlruPolicy(const PolicyView& view, BlockQueue queue);

  const std::uint32_t class_count_;
  const std::uint32_t most_protected_;
};

}  // namespace cairn
