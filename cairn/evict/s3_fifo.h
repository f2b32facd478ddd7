// S3FifoPolicy: three queues that are never reordered (Yang et al., SOSP 2023).
//
// Does:     a block comes into the small queue, a tenth of the pool. At its end it goes on to the main queue if it was
//           used twice more, else it goes, and its key is remembered: if it comes back, it goes straight to the main queue.
//           At the end of that it gets another round for each use, up to three.
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
  void gave_up(BlockId block_id) override;

 private:
  enum : BlockQueue::Segment { kSmall, kMain, kSegments };
  static constexpr std::uint8_t kMaxUses = 3;

  S3FifoPolicy(const PolicyView& view, BlockQueue queue, GhostLists ghosts, PageArray<std::uint8_t> uses);
  void count_use(BlockId block_id);

  const std::uint32_t small_target_;
  GhostLists ghosts_;             // one list: of the small queue
  PageArray<std::uint8_t> uses_;  // of each block since it came into its queue, or its last round
};

}  // namespace cairn
