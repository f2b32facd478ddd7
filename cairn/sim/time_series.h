// TimeSeries: what happened when, in a bounded number of equal spans of virtual time, however long the run is.
//
// Does:     begins with spans of one second; where they would become too many, two become one, and so on.
// Threads:  one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/clock.h"

namespace cairn::sim {

struct TimeSpan {
  // Of the requests whose first token came in it.
  std::uint64_t first_tokens = 0;
  std::uint64_t input_tokens = 0;
  std::uint64_t reused_tokens = 0;
  Duration ttft_sum{0};
  Duration ttft_max{0};
  // Of the passes that began in it; the sums are over nanoseconds.
  Duration busy{0};
  double blocks_in_use = 0;
  double blocks_resident = 0;
  double waiting = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;

  void add(const TimeSpan& other);
};

class TimeSeries {
 public:
  static constexpr std::size_t kMaxSpans = 240;

  // The span that a moment is in; good until the next call. Requires: a moment at or after 0.
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
