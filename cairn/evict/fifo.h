// FifoPolicy: evicts the block that first became evictable. A block that is used again keeps its place.
#pragma once

#include "cairn/evict/segmented_policy.h"

namespace cairn {

class FifoPolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);

  void touch(std::span<const BlockId> /*block_ids*/) override {}  // only the first release counts

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;

 private:
  using SegmentedPolicy::SegmentedPolicy;
};

}  // namespace cairn
