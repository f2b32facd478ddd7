// Clock: the source of time. Components get a clock from their creator and never read the machine's clock themselves, so
// that tests and simulations can run in virtual time.
//
// Thread safety: now() is safe from any thread.
// Ownership: a clock outlives the components that use it.
#pragma once

#include <atomic>
#include <chrono>

namespace cairn {

// Time since an arbitrary start; only differences have a meaning.
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

// The machine's monotonic clock.
[[nodiscard]] const Clock& steady_clock();

// Virtual time for tests and simulations: it moves only by advance().
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint(now_.load(std::memory_order_relaxed)); }
  void advance(Duration by) { now_.fetch_add(by.count(), std::memory_order_relaxed); }

 private:
  std::atomic<Duration::rep> now_{0};  // relaxed: a time orders nothing but itself
};

}  // namespace cairn
