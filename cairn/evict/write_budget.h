// WriteBudget: so many bytes a day, for a disk that wears: a token bucket.
//
// Does:     fills evenly over the day, up to an hour's worth, so that a burst after a quiet time is no more than that; a
//           new one is full.
// Owner:    whoever writes. Threads: none. Time is handed in and never goes backwards.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

class WriteBudget {
 public:
  static constexpr Duration kBurst = std::chrono::hours(1);

  WriteBudget(std::uint64_t bytes_per_day, TimePoint now)
      : bytes_per_ns_(static_cast<double>(bytes_per_day) / kDayNs),
        most_(bytes_per_ns_ * static_cast<double>(kBurst.count())),
        bytes_(most_),
        filled_at_(now) {}

  // Takes the bytes if they are there.
  [[nodiscard]] bool take(std::uint64_t bytes, TimePoint now) {
    fill(now);
    if (bytes_ < static_cast<double>(bytes)) {
      return false;
    }
    bytes_ -= static_cast<double>(bytes);
    return true;
  }
  // What is there, as a part of the most there can be.
  [[nodiscard]] double fullness(TimePoint now) {
    fill(now);
    return most_ > 0 ? bytes_ / most_ : 0;
  }

 private:
  static constexpr double kDayNs = 86'400e9;

  void fill(TimePoint now) {
    bytes_ = std::min(most_, bytes_ + bytes_per_ns_ * static_cast<double>((now - filled_at_).count()));
    filled_at_ = now;
  }

  double bytes_per_ns_;
  double most_;
  double bytes_;
  TimePoint filled_at_;
};

}  // namespace cairn
