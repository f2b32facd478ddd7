// MultiLruPolicy: four lists by how often a block was used of late, the coldest emptied first, the oldest release first
// in each.
//
// Does:     uses are counted by key in a TinyLfu sketch, so that a block that was evicted and comes back is not cold.
//           Below 3 uses a block is cold, below 8 warm, below 15 hot. Its list is chosen when it is released, and kept
//           until it is used again.
#pragma once

#include "cairn/evict/segmented_policy.h"
#include "cairn/evict/tiny_lfu.h"

namespace cairn {

class MultiLruPolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);
  [[nodiscard]] std::size_t bytes() const override { return SegmentedPolicy::bytes() + sketch_.bytes(); }

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;

 private:
  MultiLruPolicy(const PolicyView& view, BlockQueue queue, TinyLfu sketch);

  TinyLfu sketch_;
};

}  // namespace cairn
