// OffloadEdge::Impl: which blocks are worth a copy.
#include <algorithm>
#include <utility>

#include "cairn/offload/offload_impl.h"

namespace cairn {

OffloadEdge::Impl::Reason OffloadEdge::Impl::refusal_of(Admission admission) {
  switch (admission) {
    case Admission::kAdmitted:
      return std::nullopt;
    case Admission::kTooShort:
      return OffloadRefusal::kTooShort;
    case Admission::kNeverSeenTwice:
      return OffloadRefusal::kNeverSeenTwice;
    case Admission::kWouldNotLast:
      return OffloadRefusal::kWouldNotLast;
    case Admission::kOverBudget:
      break;
  }
  return OffloadRefusal::kOverBudget;
}

bool OffloadEdge::Impl::look_into_inbox(TimePoint now) {
  inbox_.take(news_);
  filter_.used(news_.uses);
  if (is_ended_ || news_.candidates.empty()) {
    return false;
  }
  if (is_paused_ || (is_ahead() && free_room_below() == 0)) {
    missed_some_ = true;  // they are copied when their turn to go has come, or there is room again
    return false;
  }
  offered_ += news_.left_out;
  refused_[static_cast<std::size_t>(OffloadRefusal::kShed)] += news_.left_out;
  missed_some_ = missed_some_ || news_.left_out > 0;
  // The last of a sequence first: what stands before an admitted block is admitted too. They are copied in the order in
  // which they came all the same.
  const std::uint64_t number = queue_.take_numbers(news_.candidates.size());
  std::span<const OffloadInbox::Candidate> left = news_.candidates;
  while (!left.empty()) {
    const std::size_t some = std::min<std::size_t>(left.size(), options_.batch);
    offer(left.last(some), number + left.size() - some, now);
    left = left.first(left.size() - some);
  }
  return true;
}

// `number`: of the first in the queue.
void OffloadEdge::Impl::offer(std::span<const OffloadInbox::Candidate> candidates, std::uint64_t number,
                              TimePoint now) {
  std::vector<BlockKey> keys;
  keys.reserve(candidates.size());
  for (const OffloadInbox::Candidate& candidate : candidates) {
    keys.push_back(candidate.key);
  }
  offered_ += candidates.size();
  const std::vector<std::optional<PeekedBlock>> seen = upper_->peek(keys);
  for (std::size_t i = candidates.size(); i-- > 0;) {
    if (is_below(keys[i])) {
      refuse(OffloadRefusal::kAlreadyBelow);
    } else if (!seen[i]) {
      refuse(OffloadRefusal::kGone);
    } else {
      offer(candidates[i], seen[i]->facts.priority, number + i, now);
    }
  }
}

void OffloadEdge::Impl::offer(const OffloadInbox::Candidate& candidate, std::uint32_t priority, std::uint64_t number,
                              TimePoint now) {
  if (keys_.contains(candidate.key)) {
    refuse(OffloadRefusal::kUnderWay);
    return;
  }
  if (priority < options_.least_priority) {
    refuse(OffloadRefusal::kLowPriority);
    return;
  }
  if (const Reason reason = refusal_of(filter_.offer(candidate.key, candidate.sequence_blocks, now))) {
    refuse(*reason);
    return;
  }
  const std::optional<BlockKey> shed = queue_.push(
      {.key = candidate.key, .priority = priority, .frequency = registry_.frequency(candidate.key)}, number);
  keys_.emplace(candidate.key, KeyState{.is_wanted = true, .is_admitted = true});
  if (shed) {
    resolve(*shed, OffloadRefusal::kShed);
    missed_some_ = true;
  }
}

}  // namespace cairn
