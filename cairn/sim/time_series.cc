#include "cairn/sim/time_series.h"

#include <algorithm>
#include <utility>

namespace cairn::sim {

void TimeSpan::add(const TimeSpan& other) {
  first_tokens += other.first_tokens;
  input_tokens += other.input_tokens;
  reused_tokens += other.reused_tokens;
  ttft_sum += other.ttft_sum;
  ttft_max = std::max(ttft_max, other.ttft_max);
  busy += other.busy;
  blocks_in_use += other.blocks_in_use;
  blocks_resident += other.blocks_resident;
  waiting += other.waiting;
  prompt_tokens += other.prompt_tokens;
  output_tokens += other.output_tokens;
}

TimeSpan& TimeSeries::extend(TimePoint moment) {
  while (static_cast<std::size_t>(moment / width_) >= kMaxSpans) {
    for (std::size_t i = 1; i < spans_.size(); ++i) {
      const TimeSpan moved = std::exchange(spans_[i], {});
      spans_[i / 2].add(moved);
    }
    spans_.resize((spans_.size() + 1) / 2);
    width_ *= 2;
  }
  const auto index = static_cast<std::size_t>(moment / width_);
  spans_.resize(std::max(spans_.size(), index + 1));
  return spans_[index];
}

}  // namespace cairn::sim
