// MultiLruPolicy: four lists by recent uses. The coldest list is emptied first, in each list the oldest release first.
//
// A TinyLfu sketch counts uses by key, so that an evicted block that returns is not cold. A block is cold below 3 uses,
// warm below 8, hot below 15. Its list is chosen when it is released, and kept until it is used again.
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
