#include "cairn/evict/adaptive.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cairn/tokens/block_key.h"

namespace cairn {

namespace {

// A shadow has one block for so many blocks of the pool; but at least kLeastShadowBlocks, or as many as the pool.
constexpr std::uint32_t kPoolBlocksPerShadowBlock = 32;
constexpr std::uint32_t kLeastShadowBlocks = 1024;
// A hit of a shadow counts half after this many turnovers of the pool.
constexpr double kPoolsToHalf = 12;
// Another expert takes the lead if it has this share more hits than the leader, and more than chance explains.
constexpr double kMargin = 0.01;
constexpr double kChance = 1.5;  // standard deviations

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> AdaptivePolicy::create(const PolicyView& view) {
  PolicyView by_leaves = view;
  by_leaves.leaves_first = true;
  CAIRN_TRY_ASSIGN(BlockQueue queue, BlockQueue::create(by_leaves, kUseSegments));
  CAIRN_TRY_ASSIGN(ReuseHistory history, ReuseHistory::create(view.capacity, view.seed));
  const std::uint32_t shadow_blocks =
      std::max(view.capacity / kPoolBlocksPerShadowBlock, std::min(view.capacity, kLeastShadowBlocks));
  std::vector<Judged> experts;
  for (const Expert expert : kExperts) {
    CAIRN_TRY_ASSIGN(std::unique_ptr<ShadowCache> shadow,
                     ShadowCache::create({.expert = expert,
                                          .blocks = shadow_blocks,
                                          .leaves_first = shadow_blocks == view.capacity,
                                          .seed = view.seed}));
    experts.push_back({.shadow = std::move(shadow)});
  }
  return std::unique_ptr<EvictionPolicy>(
      new AdaptivePolicy(view, std::move(queue), std::move(history), std::move(experts), shadow_blocks));
}

AdaptivePolicy::AdaptivePolicy(const PolicyView& view, BlockQueue queue, ReuseHistory history,
                               std::vector<Judged> experts, std::uint32_t shadow_blocks)
    : SegmentedPolicy(view, std::move(queue)),
      capacity_(view.capacity),
      seed_(view.seed),
      sampled_below_((std::uint64_t{shadow_blocks} << 32) / std::max(1U, view.capacity)),
      judge_every_(std::max(64U, view.capacity / 16)),
      fading_(std::exp2(-static_cast<double>(judge_every_) / (kPoolsToHalf * std::max(1U, view.capacity)))),
      history_(std::move(history)),
      model_(view.capacity),
      experts_(std::move(experts)),
      next_judgement_(judge_every_) {}

std::size_t AdaptivePolicy::bytes() const {
  std::size_t sum = SegmentedPolicy::bytes() + history_.bytes() + experts_.size() * sizeof(Judged);
  for (const Judged& expert : experts_) {
    sum += expert.shadow->bytes();
  }
  return sum;
}

void AdaptivePolicy::place(BlockId block_id) {
  const std::uint32_t uses = record_use(block_id);
  queue().place(block_id, segment_of_uses(uses), now_);
}

// Records one more use of the block, and returns how many uses it has.
std::uint32_t AdaptivePolicy::record_use(BlockId block_id) {
  now_ = queue().next_tick();
  const BlockKey& block = key(block_id);
  std::optional<ReuseHistory::Past> past = history_.find(block, now_);
  if (queue().is_known(block_id)) {  // then its age and uses are known exactly
    const std::uint32_t at_least = uses_of_segment(queue().segment(block_id));
    past = {.age = now_ - queue().tick(block_id), .uses = past ? std::max(past->uses, at_least) : at_least};
  }
  std::uint32_t uses = 1;
  if (past && past->age <= model_.horizon()) {
    model_.returned(past->uses, past->age);
    uses = std::min(past->uses + 1, ReuseHistory::kMaxUses);
  }
  model_.began(uses);
  history_.record(block, now_, uses);
  if ((hash_of(block, seed_) >> 32) < sampled_below_) {
    show_shadows(block, uses, queue().is_known(block_id));
  }
  model_.learn(now_);
  if (now_ >= next_judgement_) {
    judge();
  }
  return uses;
}

void AdaptivePolicy::show_shadows(const BlockKey& block, std::uint32_t uses, bool was_here) {
  std::array<bool, kExperts.size()> hit{};
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    hit[i] = experts_[i].shadow->use(block, uses, model_, now_);
    experts_[i].hits += hit[i] ? 1 : 0;
  }
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    for (std::size_t other = 0; other < experts_.size(); ++other) {
      experts_[i].hits_alone[other] += hit[i] && !hit[other] ? 1 : 0;
    }
  }
  const bool lru_hit = hit[index_of(Expert::kLru)];
  alone_here_ += was_here && !lru_hit ? 1 : 0;
  alone_in_lru_ += lru_hit && !was_here ? 1 : 0;
}

void AdaptivePolicy::judge() {
  next_judgement_ = now_ + judge_every_;
  for (Judged& expert : experts_) {
    expert.hits *= fading_;
    expert.failed_by *= fading_;
    for (double& alone : expert.hits_alone) {
      alone *= fading_;
    }
  }
  const auto best = std::ranges::max_element(experts_, {}, [this](const Judged& e) { return lead_over_leader(e); });
  // A shadow sees single blocks, but a hit needs all blocks before it. In the end the pool's own hits count.
  if (leader_ != Expert::kLru && lost_to_lru() > 0) {
    experts_[index_of(leader_)].failed_by += alone_in_lru_ - alone_here_;
    follow(Expert::kLru);
  } else if (lead_over_leader(*best) > 0) {
    follow(kExperts[static_cast<std::size_t>(best - experts_.begin())]);
  }
}

void AdaptivePolicy::follow(Expert expert) {
  leader_ = expert;
  alone_here_ = 0;
  alone_in_lru_ = 0;
}

// By how many hits the pool was worse than LRU would have been, less what chance explains.
double AdaptivePolicy::lost_to_lru() const {
  return alone_in_lru_ - alone_here_ - kChance * std::sqrt(alone_in_lru_ + alone_here_);
}

// By how many hits the expert is ahead of the leader, less what chance explains. Only uses on which the two differ
// count.
double AdaptivePolicy::lead_over_leader(const Judged& expert) const {
  const Judged& leader = experts_[index_of(leader_)];
  const double for_it = expert.hits_alone[index_of(leader_)];
  const double against = leader.hits_alone[static_cast<std::size_t>(&expert - experts_.data())];
  return for_it - against - expert.failed_by - kMargin * leader.hits - kChance * std::sqrt(for_it + against);
}

BlockId AdaptivePolicy::choose(ClassRange classes, const Veto& veto) {
  const double once_target = experts_[index_of(leader_)].shadow->once_share() * capacity_;
  return choose_victim(leader_, {model_, now_, once_target}, queue(), classes, veto);
}

}  // namespace cairn
