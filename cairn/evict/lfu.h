// LfuPolicy: the block with the fewest uses goes first, and uses fade: each victim raises the floor from which new ones
// and those used again start (LFU with dynamic ageing).
//
// Does:     a block's rank, when it is released, is its uses so far plus the rank of the last victim; the lowest rank
//           goes first, among equals the oldest release.
#pragma once

#include "cairn/base/page_array.h"
#include "cairn/evict/segmented_policy.h"

namespace cairn {

class LfuPolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);
  [[nodiscard]] std::size_t bytes() const override { return SegmentedPolicy::bytes() + uses_.bytes(); }

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;
  void gave_up(BlockId block_id) override;

 private:
  LfuPolicy(const PolicyView& view, BlockQueue queue, PageArray<std::uint16_t> uses);
  void count_use(BlockId block_id);

  PageArray<std::uint16_t> uses_;
  std::uint64_t floor_ = 0;
};

}  // namespace cairn
