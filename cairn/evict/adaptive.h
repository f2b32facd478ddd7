// AdaptivePolicy: follows the expert that would have done best recently.
//
// Blocks are kept by how often they were used, uses before an eviction included, and within that by the time of
// release. The leading expert picks the victim from the ends of these parts (experts.h). A shadow cache for each expert
// sees a sample of the same uses; another expert takes the lead when its shadow had more hits by a clear margin. A
// change of the lead moves no block and forgets nothing.
//
// Leaves always go first: an expert may evict the newest block, which otherwise would be the head of a sequence that
// was just released.
//
// Complexity: O(1) a block. 61 bytes a block, and up to 350 KiB more in pools that are too small to learn from
// otherwise.
#pragma once

#include <array>
#include <vector>

#include "cairn/evict/experts.h"
#include "cairn/evict/reuse_history.h"
#include "cairn/evict/reuse_model.h"
#include "cairn/evict/segmented_policy.h"
#include "cairn/evict/shadow_cache.h"

namespace cairn {

class AdaptivePolicy final : public SegmentedPolicy {
 public:
  [[nodiscard]] static Result<std::unique_ptr<EvictionPolicy>> create(const PolicyView& view);
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] Expert leader() const { return leader_; }

 protected:
  void place(BlockId block_id) override;
  [[nodiscard]] BlockId choose(ClassRange classes, const Veto& veto) override;
  void prefetch(BlockId block_id) const override {
    SegmentedPolicy::prefetch(block_id);
    history_.prefetch(key(block_id));
  }

 private:
  using PerExpert = std::array<double, kExperts.size()>;
  struct Judged {
    std::unique_ptr<ShadowCache> shadow;
    double hits = 0;            // recent ones; older hits fade
    PerExpert hits_alone = {};  // of those, the ones that the other expert's shadow missed
    double failed_by = 0;       // hits that the pool lost against LRU while this expert led
  };

  AdaptivePolicy(const PolicyView& view, BlockQueue queue, ReuseHistory history, std::vector<Judged> experts,
                 std::uint32_t shadow_blocks);

  std::uint32_t record_use(BlockId block_id);
  void show_shadows(const BlockKey& block, std::uint32_t uses, bool was_here);
  void judge();
  void follow(Expert expert);
  [[nodiscard]] double lost_to_lru() const;
  [[nodiscard]] double lead_over_leader(const Judged& expert) const;

  const std::uint32_t capacity_;
  const KeySeed seed_;
  const std::uint64_t sampled_below_;  // a key is sampled if 32 bits of its hash are below this
  const std::uint64_t judge_every_;
  const double fading_;  // factor by which hits fade from one judgement to the next
  ReuseHistory history_;
  ReuseModel model_;
  std::vector<Judged> experts_;  // by index_of
  Expert leader_ = Expert::kLru;
  // Of the sampled uses since the lead changed: hits of the pool that LRU's shadow missed, and the reverse.
  double alone_here_ = 0;
  double alone_in_lru_ = 0;
  std::uint64_t now_ = 0;
  std::uint64_t next_judgement_;
};

}  // namespace cairn
