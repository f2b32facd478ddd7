#include "cairn/connector/iteration_timer.h"

namespace cairn {

const IterationTimer::Kept* IterationTimer::past(std::uint64_t before) const {
  return before >= 1 && before <= count_ && before <= kept_.size() ? &kept_[(count_ - before) % kept_.size()] : nullptr;
}

std::optional<EngineIteration> IterationTimer::built(const Built& iteration, TimePoint now) {
  std::optional<EngineIteration> timed;
  const Kept* const last = past(1);
  if (iteration.is_ahead || iteration.work.decode_tokens > 0) {
    is_ahead_ = iteration.is_ahead;
  }
  if (last != nullptr && !is_measured_) {
    const Kept* const over = is_ahead_ ? past(2) : last;
    const std::optional<TimePoint> end = iteration.continues ? std::optional(now) : idle_since_;
    const bool was_busy = is_ahead_ ? iteration.continues && last->iteration.continues : end.has_value();
    if (over != nullptr && was_busy && !over->iteration.waits && !last->iteration.waits) {
      timed = over->iteration.work;
      timed->duration = *end - last->at;
    }
  }
  kept_[count_++ % kept_.size()] = {.iteration = iteration, .at = now};
  idle_since_.reset();
  return timed;
}

std::optional<EngineIteration> IterationTimer::measured(std::uint64_t number, Duration duration) {
  is_measured_ = true;
  for (std::uint64_t before = 1; const Kept* const kept = past(before); ++before) {
    if (kept->iteration.number == number && !kept->iteration.waits) {
      EngineIteration timed = kept->iteration.work;
      timed.duration = duration;
      return timed;
    }
  }
  return std::nullopt;
}

}  // namespace cairn
