#include "cairn/rank/step_gate.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cairn {

namespace {

// Engines are a step or two ahead of their device; with more marks than this, reached() asks the events.
constexpr std::size_t kManyAhead = 16;
// How often a wait for an event looks for wake() and its deadline.
constexpr Duration kGlance = std::chrono::milliseconds(5);

}  // namespace

void StepGate::reached(StepPoint point, StepEventPtr after) {
  const MutexLock lock(mutex_);
  if (point <= last_) {
    return;
  }
  last_ = point;
  if (!first_) {
    first_ = point.mark;
  }
  if (has_failed_) {
    // The mark comes after the failed event: it is never reached.
  } else if (after != nullptr) {
    if (ahead_.size() >= kManyAhead) {
      ask_events();
    }
    ahead_.push_back({.point = point, .after = std::move(after)});
  } else if (ahead_.empty()) {
    now_ = point;
  } else {
    ahead_.back().point = point;
  }
  if (is_waiting_) {
    news_.notify_one();
  }
}

void StepGate::ask_events() {
  while (!ahead_.empty()) {
    const StepState state = ahead_.front().after->state();
    if (state == StepState::kPending) {
      return;
    }
    if (state == StepState::kFailed) {
      has_failed_ = true;
      ahead_.clear();
      return;
    }
    now_ = ahead_.front().point;
    ahead_.pop_front();
  }
}

bool StepGate::has_failed(StepPoint point) {
  const MutexLock lock(mutex_);
  ask_events();
  return has_failed_ && point > now_;
}

std::optional<StepMark> StepGate::first() const {
  const MutexLock lock(mutex_);
  return first_;
}

StepPoint StepGate::now() {
  const MutexLock lock(mutex_);
  ask_events();
  return now_;
}

StepEventPtr StepGate::event_of(StepPoint point) const {
  const auto found = std::ranges::find_if(ahead_, [point](const Step& step) { return step.point >= point; });
  return found == ahead_.end() ? nullptr : found->after;
}

void StepGate::wait_for(std::optional<StepPoint> point, Duration longest) {
  const Clock& clock = steady_clock();
  const TimePoint now = clock.now();
  const TimePoint deadline = longest > TimePoint::max() - now ? TimePoint::max() : now + longest;
  for (;;) {
    StepEventPtr after;
    {
      const MutexLock lock(mutex_);
      ask_events();
      if (std::exchange(is_woken_, false) || (point && (now_ >= *point || has_failed_)) || clock.now() >= deadline) {
        return;
      }
      after = point ? event_of(*point) : nullptr;
      if (after == nullptr) {
        is_waiting_ = true;
        // At most a day: some libraries add the duration to a time and overflow.
        news_.wait_for(mutex_, std::min<Duration>(deadline - clock.now(), std::chrono::hours(24)));
        is_waiting_ = false;
        continue;
      }
    }
    static_cast<void>(after->wait_until(std::min(deadline, clock.now() + kGlance)));
  }
}

void StepGate::wake() {
  const MutexLock lock(mutex_);
  is_woken_ = true;
  news_.notify_one();
}

void StepGate::reset() {
  const MutexLock lock(mutex_);
  first_.reset();
  now_ = StepMark();
  last_ = StepMark();
  has_failed_ = false;
  ahead_.clear();
}

}  // namespace cairn
