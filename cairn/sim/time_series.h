// TimeSeries: figures over virtual time, in a bounded number of equal intervals, however long the run is.
//
// Begins with intervals of one second. If there would be too many, pairs of intervals are merged.
//
// Thread safety: not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/report.h"

namespace cairn::sim {

struct TimeSpan {
  // Requests that got their first token in the interval.
  std::uint64_t first_tokens = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t reused_tokens = 0;
  Duration ttft_sum{0};
  Duration ttft_max{0};
  // Passes that began in the interval; the doubles are sums over nanoseconds.
  Duration busy{0};
  double blocks_in_use = 0;
  double blocks_resident = 0;
  double waiting = 0;
  PerTier<double> below{};
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;

  void add(const TimeSpan& other);
};

class TimeSeries {
 public:
  static constexpr std::size_t kMaxSpans = 240;

  // The interval that contains a moment; valid until the next call. Requires: moment >= 0.
  [[nodiscard]] TimeSpan& at(TimePoint moment) {
    const auto index = static_cast<std::size_t>(moment / width_);
    return index < spans_.size() ? spans_[index] : extend(moment);
  }
  [[nodiscard]] std::span<const TimeSpan> spans() const { return spans_; }
  [[nodiscard]] Duration width() const { return width_; }

 private:
  TimeSpan& extend(TimePoint moment);

  Duration width_ = std::chrono::seconds(1);
  std::vector<TimeSpan> spans_;
};

}  // namespace cairn::sim
