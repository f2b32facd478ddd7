// StepGate: how far an engine's device is known to be with its iterations.
//
// Does:     takes marks, each with the event that it is true after, and says which is reached: its event is over, and so
//           are those of all marks before it. Passive: events are asked when somebody wants to know, and a mark costs the
//           engine's thread next to nothing.
// Bounded:  by how far the engine runs ahead of its device: what is over is let go of, and marks without an event join
//           the one before.
// Threads:  any; one at a time waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/ranks/step_mark.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

class StepGate {
 public:
  // None: nothing to wait for but the marks before. One that is not later than the last is nothing new.
  void reached(StepMark mark, StepEventPtr after) CAIRN_EXCLUDES(mutex_);
  // The first that was ever named; none before that.
  [[nodiscard]] std::optional<StepMark> first() const CAIRN_EXCLUDES(mutex_);
  // The latest that is reached.
  [[nodiscard]] StepMark now() CAIRN_EXCLUDES(mutex_);
  // Waits until `mark` is, or somebody wakes it, or for `longest` of the machine's time.
  void wait_for(StepMark mark, Duration longest) CAIRN_EXCLUDES(mutex_);
  // Who waits returns, and who does not will not the next time.
  void wake() CAIRN_EXCLUDES(mutex_);
  // Marks begin anew: those of another leader.
  void reset() CAIRN_EXCLUDES(mutex_);

 private:
  struct Step {
    StepMark mark;
    StepEventPtr after;
  };
  void ask_events() CAIRN_REQUIRES(mutex_);
  // The event to wait for until the mark is reached; none: it has not been named yet.
  [[nodiscard]] StepEventPtr event_of(StepMark mark) const CAIRN_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kStepGate};
  std::condition_variable_any news_;
  std::optional<StepMark> first_ CAIRN_GUARDED_BY(mutex_);
  StepMark now_ CAIRN_GUARDED_BY(mutex_);
  StepMark last_ CAIRN_GUARDED_BY(mutex_);           // that was named
  std::deque<Step> ahead_ CAIRN_GUARDED_BY(mutex_);  // named and not known to be reached, in order
  bool is_waiting_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_woken_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
