// S3FifoPolicy: three queues that are never reordered (Yang et al., SOSP 2023).
//
// A new block enters the small queue, a tenth of the pool. At the end of it, the block moves to the main queue if it
// was used twice more; otherwise it is evicted and its key is remembered. A block whose key is remembered enters the
// main queue at once. At the end of the main queue, a block gets another round for each use, up to three.
#pragma once

#include "cairn/base/page_array.h"
#include "cairn/evict/ghost_lists.h"
#include "cairn/evict/segmented_policy.h"

namespace cairn {

class S3FifoPolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);
  [[nodiscard]] std::size_t bytes() const override;

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;
  void on_evicted(BlockId block_id) override;

 private:
  enum : BlockQueue::Segment { kSmall, kMain, kSegments };
  static constexpr std::uint8_t kMaxUses = 3;

  S3FifoPolicy(const PolicyView& view, BlockQueue queue, GhostLists ghosts, PageArray<std::uint8_t> uses);
  void count_use(BlockId block_id);

  const std::uint32_t small_target_;
  GhostLists ghosts_;             // keys evicted from the small queue
  PageArray<std::uint8_t> uses_;  // of each block since it entered its queue, or since its last round
};

}  // namespace cairn
