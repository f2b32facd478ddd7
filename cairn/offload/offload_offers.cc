// OffloadEdge::Impl: which blocks are worth a copy.
#include <algorithm>
#include <utility>

#include "cairn/offload/offload_impl.h"

namespace cairn {

namespace {

OffloadRefusal refusal_of(Admission admission) {
  switch (admission) {
    case Admission::kTooShort:
      return OffloadRefusal::kTooShort;
    case Admission::kNeverSeenTwice:
      return OffloadRefusal::kNeverSeenTwice;
    case Admission::kWouldNotLast:
      return OffloadRefusal::kWouldNotLast;
    case Admission::kOverBudget:
    case Admission::kAdmitted:
      break;
  }
  return OffloadRefusal::kOverBudget;
}

}  // namespace

bool OffloadEdge::Impl::look_into_inbox(TimePoint now) {
  const OffloadInbox::Contents contents = inbox_.take();
  filter_.used(contents.uses);
  if (is_paused_ || is_ended_) {
    return false;
  }
  offered_ += contents.left_out;
  refused_[static_cast<std::size_t>(OffloadRefusal::kShed)] += contents.left_out;
  // The last of a sequence first: what stands before an admitted block is admitted too.
  std::span<const OffloadInbox::Candidate> left = contents.candidates;
  while (!left.empty()) {
    const std::size_t some = std::min<std::size_t>(left.size(), options_.batch);
    offer(left.last(some), now);
    left = left.first(left.size() - some);
  }
  return !contents.candidates.empty();
}

void OffloadEdge::Impl::offer(std::span<const OffloadInbox::Candidate> candidates, TimePoint now) {
  std::vector<OffloadInbox::Candidate> missing;
  std::vector<BlockKey> keys;
  offered_ += candidates.size();
  for (const OffloadInbox::Candidate& candidate : candidates) {
    if (is_below(candidate.key)) {
      refuse(OffloadRefusal::kAlreadyBelow);
    } else {
      missing.push_back(candidate);
      keys.push_back(candidate.key);
    }
  }
  // Parents first: blocks that nobody else holds are let go of in the opposite order.
  const std::vector<BlockFacts> facts = upper_->hold(keys).facts();
  auto next = facts.rbegin();
  for (auto candidate = missing.rbegin(); candidate != missing.rend(); ++candidate) {
    if (next == facts.rend() || next->block.key != candidate->key) {
      refuse(OffloadRefusal::kGone);
    } else {
      offer(*candidate, (next++)->priority, now);
    }
  }
}

void OffloadEdge::Impl::offer(const OffloadInbox::Candidate& candidate, std::uint32_t priority, TimePoint now) {
  if (keys_.contains(candidate.key)) {
    refuse(OffloadRefusal::kUnderWay);
    return;
  }
  if (priority < options_.least_priority) {
    refuse(OffloadRefusal::kLowPriority);
    return;
  }
  const Admission admission = filter_.offer(candidate.key, candidate.sequence_blocks, now);
  if (admission != Admission::kAdmitted) {
    refuse(refusal_of(admission));
    return;
  }
  const std::optional<BlockKey> shed =
      queue_.push({.key = candidate.key, .priority = priority, .frequency = registry_.frequency(candidate.key)});
  keys_.emplace(candidate.key, KeyState{.is_wanted = true, .is_admitted = true});
  if (shed) {
    resolve(*shed, OffloadRefusal::kShed);
  }
}

// A victim that is to be copied, or why not.
OffloadEdge::Impl::Reason OffloadEdge::Impl::judge(const BlockFacts& victim, bool is_open, TimePoint now) {
  const BlockKey& key = victim.block.key;
  const auto found = keys_.find(key);
  const bool waits = found != keys_.end();
  if (waits && found->second.phase != Phase::kWaiting) {
    return OffloadRefusal::kUnderWay;
  }
  if (is_below(key)) {
    return OffloadRefusal::kAlreadyBelow;
  }
  if (!is_open) {
    return OffloadRefusal::kTierOut;
  }
  if (waits && found->second.is_admitted) {
    return std::nullopt;
  }
  if (!waits && victim.priority < options_.least_priority) {
    return OffloadRefusal::kLowPriority;
  }
  const Admission admission = waits ? filter_.demand(key, now) : filter_.offer(key, key.position() + 1, now);
  return admission == Admission::kAdmitted ? Reason() : refusal_of(admission);
}

}  // namespace cairn
