// IterationTimer: how long the iterations of an engine take, from the times at which its scheduler builds them or from what
// the engine measured itself.
//
// An engine builds the next iteration when the last one is over, or, if it schedules ahead (asynchronous scheduling), when
// the one before the last is over. An engine with a pipeline has several batches in flight, and runs each request in every
// second (third, ...) iteration: an iteration then takes until its requests run again, as it does for a request that waits for its
// first token. One beside which a larger prefill was in flight has waited for that, and is not timed. Time in which the engine had
// nothing to run counts for no iteration.
//
// Thread safety: none; the scheduler's thread alone.
// Ownership: SchedulerConnector.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/onboard/load_request.h"

namespace cairn {

class IterationTimer {
 public:
  struct Built {
    std::uint64_t number = 0;
    EngineIteration work = {};  // without its duration
    // The latest iteration of which a request runs on: the engine was busy since.
    std::optional<std::uint64_t> runs_on_from = {};
    bool is_ahead = false;  // it computes a token after one that is not known yet: the iteration before still runs
    bool waits = false;     // for loads or saves: its time tells nothing
  };
  // Returns an earlier iteration if its duration is known now.
  [[nodiscard]] std::optional<EngineIteration> built(const Built& iteration, TimePoint now);
  // All requests of the latest iteration have ended.
  void idle(TimePoint now) { idle_since_ = now; }
  // The engine measured an iteration. From then on nothing else counts. std::nullopt if the iteration is unknown, or too
  // long ago.
  [[nodiscard]] std::optional<EngineIteration> measured(std::uint64_t number, Duration duration);

 private:
  struct Kept {
    Built iteration;
    TimePoint at{};
    std::uint64_t turn = 0;  // it runs on from the iteration so many before it; 0 if that is not known
  };
  // The iteration that was built `before` calls of built() ago; null if there is none.
  [[nodiscard]] const Kept* past(std::uint64_t before) const;
  [[nodiscard]] std::optional<EngineIteration> timed(std::uint64_t turn, TimePoint now) const;
  // Whether no iteration that was in flight beside that one, of `turn` batches, prefilled more.
  [[nodiscard]] bool is_largest(std::uint64_t before, std::uint64_t turn) const;

  std::array<Kept, 8> kept_;
  std::uint64_t count_ = 0;
  bool is_measured_ = false;  // the engine measures
  bool is_ahead_ = false;     // it schedules ahead, as far as is known
  std::optional<TimePoint> idle_since_;
};

}  // namespace cairn
