// StepGate: which steps an engine's device is known to have reached.
//
// The engine names marks, each with the event after which it is true. A mark is reached when its event and those of all
// earlier marks have ended. Events are polled only when a caller needs to know, so a mark costs the engine's thread
// next to nothing. If an event fails, neither its mark nor any later one is ever reached: what the device has computed
// since the last mark that was reached is unknown. Only reset() ends that.
// The number of marks kept is bounded by how far the engine runs ahead of its device: marks that are reached are dropped,
// and a mark without an event joins the one before it.
//
// Thread safety: any thread may call; one at a time waits.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

// How far an engine is: a mark, or so many layers of an iteration that has begun.
struct StepPoint {
  StepMark mark;
  std::uint32_t layers = 0;  // computed after begun(); 0 with every other mark

  StepPoint(StepMark of) : mark(of) {}  // NOLINT(google-explicit-constructor)
  StepPoint(StepMark begun, std::uint32_t first_layers) : mark(begun), layers(first_layers) {}
  friend auto operator<=>(const StepPoint&, const StepPoint&) = default;
};

class StepGate {
 public:
  // If `after` is null, the mark is reached as soon as all earlier marks are. A mark that is not later than the last one is
  // ignored.
  void reached(StepPoint point, StepEventPtr after) CAIRN_EXCLUDES(mutex_);
  // The first mark that was named since reset(); std::nullopt if none was.
  [[nodiscard]] std::optional<StepMark> first() const CAIRN_EXCLUDES(mutex_);
  // The latest mark that is reached. Asks the events.
  [[nodiscard]] StepPoint now() CAIRN_EXCLUDES(mutex_);
  // Whether the mark will never be reached. Asks the events.
  [[nodiscard]] bool has_failed(StepPoint point) CAIRN_EXCLUDES(mutex_);
  // Waits until `mark` is reached or has failed, wake() is called, or `longest` of the machine's time has passed. Without a
  // mark it only waits for the other two.
  void wait_for(std::optional<StepPoint> point, Duration longest) CAIRN_EXCLUDES(mutex_);
  // Wakes the current waiter. If nobody is waiting, the next wait returns at once.
  void wake() CAIRN_EXCLUDES(mutex_);
  // Forgets all marks: those of another leader follow.
  void reset() CAIRN_EXCLUDES(mutex_);

 private:
  struct Step {
    StepPoint point;
    StepEventPtr after;
  };
  void ask_events() CAIRN_REQUIRES(mutex_);
  // The event to wait for until the mark is reached; null if the mark has not been named yet.
  [[nodiscard]] StepEventPtr event_of(StepPoint point) const CAIRN_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kStepGate};
  std::condition_variable_any news_;
  std::optional<StepMark> first_ CAIRN_GUARDED_BY(mutex_);
  StepPoint now_ CAIRN_GUARDED_BY(mutex_) = StepMark();
  StepPoint last_ CAIRN_GUARDED_BY(mutex_) = StepMark();  // that was named
  std::deque<Step> ahead_ CAIRN_GUARDED_BY(mutex_);       // named and not known to be reached, in order
  bool has_failed_ CAIRN_GUARDED_BY(mutex_) = false;      // nothing after now_ is ever reached
  bool is_waiting_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_woken_ CAIRN_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
