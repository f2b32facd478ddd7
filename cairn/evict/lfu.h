// LfuPolicy: evicts the block with the fewest uses. Uses fade (LFU with dynamic ageing).
//
// When a block is released, its rank is its uses plus the rank of the last victim. The block of the lowest rank is
// evicted, of equal ones the oldest release.
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
  void on_evicted(BlockId block_id) override;

 private:
  LfuPolicy(const PolicyView& view, BlockQueue queue, PageArray<std::uint16_t> uses);
  void count_use(BlockId block_id);

  PageArray<std::uint16_t> uses_;
  std::uint64_t floor_ = 0;
};

}  // namespace cairn
