// WriteBudget: a token bucket of bytes a day, for a disk that wears.
//
// It fills evenly over the day, up to an hour's worth, which bounds a burst after a quiet time. It starts full. The
// time is passed in and must not go backwards.
//
// Thread safety: none.
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

  // Takes the bytes if there are enough; returns whether it did.
  [[nodiscard]] bool take(std::uint64_t bytes, TimePoint now) {
    fill(now);
    if (bytes_ < static_cast<double>(bytes)) {
      return false;
    }
    bytes_ -= static_cast<double>(bytes);
    return true;
  }
  // Bytes that were taken and are not written after all.
  void give_back(std::uint64_t bytes) { bytes_ = std::min(most_, bytes_ + static_cast<double>(bytes)); }
  // The bytes in the bucket as a share of an hour's worth.
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
