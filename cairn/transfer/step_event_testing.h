// For tests that wait for an engine's steps: an event that the test ends.
#pragma once

#include <condition_variable>
#include <mutex>

#include "cairn/base/clock.h"
#include "cairn/transfer/step_event.h"

namespace cairn::testing {

// A step of an engine that the test ends or fails.
class TestStep final : public StepEvent {
 public:
  void end(StepState how = StepState::kOver) {
    const std::lock_guard lock(mutex_);
    state_ = how;
    changed_.notify_all();
  }
  StepState state() override {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  StepState wait_until(TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, deadline - steady_clock().now(), [this] { return state_ != StepState::kPending; });
    return state_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  StepState state_ = StepState::kPending;
};

}  // namespace cairn::testing
