// Clock: where time comes from. Nothing in Cairn reads the machine's clock by itself (design, rule 9).
//
// Owner:   whoever builds a component hands it a clock that outlives it.
// Threads: now() is safe from any thread.
#pragma once

#include <atomic>
#include <chrono>

namespace cairn {

// Time since an arbitrary start; only differences mean anything.
using TimePoint = std::chrono::nanoseconds;
using Duration = std::chrono::nanoseconds;

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  // Never goes backwards.
  [[nodiscard]] virtual TimePoint now() const = 0;
};

// The machine's monotonic clock; one for the process.
[[nodiscard]] const Clock& steady_clock();

// Time that moves only when told to: tests and simulations.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint(now_.load(std::memory_order_relaxed)); }
  void advance(Duration by) { now_.fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  std::atomic<Duration::rep> now_{0};  // relaxed: a time orders nothing but itself
};

}  // namespace cairn
