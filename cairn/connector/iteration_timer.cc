#include "cairn/connector/iteration_timer.h"

#include <algorithm>

namespace cairn {

const IterationTimer::Kept* IterationTimer::past(std::uint64_t before) const {
  return before >= 1 && before <= count_ && before <= kept_.size() ? &kept_[(count_ - before) % kept_.size()] : nullptr;
}

bool IterationTimer::is_largest(std::uint64_t before, std::uint64_t turn) const {
  const std::uint64_t tokens = past(before)->iteration.work.prefill_tokens;
  for (std::uint64_t other = before < turn ? 1 : before - turn + 1; other < before + turn; ++other) {
    const Kept* const beside = past(other);
    if (beside != nullptr && (beside->iteration.waits || beside->iteration.work.prefill_tokens > tokens)) {
      return false;
    }
  }
  return true;
}

std::optional<EngineIteration> IterationTimer::timed(std::uint64_t turn, TimePoint now) const {
  const Kept* const last = past(1);
  if (last == nullptr || is_measured_) {
    return std::nullopt;
  }
  std::uint64_t over = 1;
  TimePoint begin = last->at;
  TimePoint end = now;
  if (is_ahead_) {
    over = 2;
    if (turn != 1 || last->turn != 1 || last->iteration.waits) {
      return std::nullopt;
    }
  } else if (turn > 1 && turn == last->turn) {
    over = turn;
    begin = past(turn)->at;
  } else if (turn != 1) {
    if (!idle_since_) {
      return std::nullopt;
    }
    end = *idle_since_;
    turn = last->turn;
  }
  if (past(over) == nullptr || past(over)->iteration.waits || !is_largest(over, std::max<std::uint64_t>(turn, 1))) {
    return std::nullopt;
  }
  EngineIteration work = past(over)->iteration.work;
  work.duration = end - begin;
  return work;
}

std::optional<EngineIteration> IterationTimer::built(const Built& iteration, TimePoint now) {
  if (iteration.is_ahead || iteration.work.decode_tokens > 0) {
    is_ahead_ = iteration.is_ahead;
  }
  std::uint64_t turn = 0;
  for (std::uint64_t before = 1; iteration.runs_on_from && turn == 0 && past(before) != nullptr; ++before) {
    turn = past(before)->iteration.number == iteration.runs_on_from ? before : 0;
  }
  const std::optional<EngineIteration> over = timed(turn, now);
  kept_[count_++ % kept_.size()] = {.iteration = iteration, .at = now, .turn = turn};
  idle_since_.reset();
  return over;
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
