#include "cairn/evict/adaptive.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cairn/evict/key_hash.h"

namespace cairn {

namespace {

// A shadow has a slot for each of so many of the pool, but at least this many, or all.
constexpr std::uint32_t kSlotsPerShadowSlot = 32;
constexpr std::uint32_t kLeastShadowSlots = 1024;
// Hits of shadows are halved when the pool was used this many times over.
constexpr std::uint64_t kPoolsToFade = 8;
// Another expert leads when it has this much more than the leader, and more than chance would give it.
constexpr double kMargin = 0.01;
constexpr double kChance = 0.5;

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> AdaptivePolicy::create(const PolicyView& view) {
  PolicyView by_leaves = view;
  by_leaves.leaves_first = true;
  Result<SlotQueue> queue = SlotQueue::create(by_leaves, kUseSegments);
  if (!queue) {
    return Unexpected(std::move(queue).error());
  }
  Result<ReuseHistory> history = ReuseHistory::create(view.capacity);
  if (!history) {
    return Unexpected(std::move(history).error());
  }
  const std::uint32_t slots = std::max(view.capacity / kSlotsPerShadowSlot, std::min(view.capacity, kLeastShadowSlots));
  std::vector<Judged> experts;
  for (const Expert expert : kExperts) {
    Result<std::unique_ptr<ShadowCache>> shadow =
        ShadowCache::create({.expert = expert, .slots = slots, .leaves_first = slots == view.capacity});
    if (!shadow) {
      return Unexpected(std::move(shadow).error());
    }
    experts.push_back({.shadow = *std::move(shadow)});
  }
  return std::unique_ptr<EvictionPolicy>(
      new AdaptivePolicy(view, *std::move(queue), *std::move(history), std::move(experts), slots));
}

AdaptivePolicy::AdaptivePolicy(const PolicyView& view, SlotQueue queue, ReuseHistory history,
                               std::vector<Judged> experts, std::uint32_t shadow_slots)
    : SegmentedPolicy(view, std::move(queue)),
      capacity_(view.capacity),
      sampled_below_((std::uint64_t{shadow_slots} << 32) / std::max(1U, view.capacity)),
      judge_every_(std::max(64U, view.capacity / 16)),
      fade_every_(kPoolsToFade * std::max(1U, view.capacity)),
      history_(std::move(history)),
      model_(view.capacity),
      experts_(std::move(experts)),
      next_judgement_(judge_every_),
      next_fading_(fade_every_) {}

std::size_t AdaptivePolicy::bytes() const {
  std::size_t sum = SegmentedPolicy::bytes() + history_.bytes() + experts_.size() * sizeof(Judged);
  for (const Judged& expert : experts_) {
    sum += expert.shadow->bytes();
  }
  return sum;
}

void AdaptivePolicy::place(SlotId slot) {
  const std::uint32_t uses = note_use(slot);
  queue().place(slot, segment_of_uses(uses), now_);
}

void AdaptivePolicy::touch(std::span<const SlotId> slots) {
  for (const SlotId slot : slots) {
    note_use(slot);
  }
}

// One more use of the slot's block: tells everyone, and says how many there are.
std::uint32_t AdaptivePolicy::note_use(SlotId slot) {
  now_ = queue().next_tick();
  const BlockKey& block = key(slot);
  std::optional<ReuseHistory::Past> past = history_.find(block, now_);
  if (queue().is_known(slot)) {  // then nothing need be guessed
    const std::uint32_t at_least = uses_of_segment(queue().segment(slot));
    past = {.age = now_ - queue().tick(slot), .uses = past ? std::max(past->uses, at_least) : at_least};
  }
  std::uint32_t uses = 1;
  if (past) {
    model_.returned(past->uses, past->age);
    uses = std::min(past->uses + 1, ReuseHistory::kMaxUses);
  }
  model_.began(uses);
  history_.record(block, now_, uses);
  if ((hash_of(block) >> 32) < sampled_below_) {
    for (Judged& expert : experts_) {
      expert.hits += expert.shadow->use(block, uses, model_, now_) ? 1 : 0;
    }
  }
  model_.learn(now_);
  if (now_ >= next_judgement_) {
    judge();
  }
  return uses;
}

void AdaptivePolicy::judge() {
  next_judgement_ = now_ + judge_every_;
  const auto best = std::ranges::max_element(experts_, {}, &Judged::hits);
  const double leading = experts_[index_of(leader_)].hits;
  if (best->hits > leading * (1 + kMargin) + kChance * std::sqrt(leading)) {
    leader_ = kExperts[static_cast<std::size_t>(best - experts_.begin())];
  }
  if (now_ >= next_fading_) {
    next_fading_ = now_ + fade_every_;
    for (Judged& expert : experts_) {
      expert.hits /= 2;
    }
  }
}

SlotId AdaptivePolicy::choose(ClassRange classes, const Veto& veto) {
  const double once_target = experts_[index_of(leader_)].shadow->once_share() * capacity_;
  return choose_victim(leader_, {model_, now_, once_target}, queue(), classes, veto);
}

}  // namespace cairn
