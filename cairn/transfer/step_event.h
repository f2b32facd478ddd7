// StepEvent: work that the device of an engine has not finished yet, such as a CUDA event.
//
// Thread safety: any thread may call.
// Ownership:     shared by the engine and the threads that wait.
// Errors:        an event may fail. Nobody then knows whether the work before it was done, so nothing that depends on it
//                may be copied.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/clock.h"

namespace cairn {

enum class StepState : std::uint8_t {
  kPending,
  kOver,
  kFailed,  // for good
};

class StepEvent {
 public:
  virtual ~StepEvent() = default;
  [[nodiscard]] virtual StepState state() = 0;
  // Waits on the calling thread until the event is over or has failed, or until `deadline` of steady_clock() has passed.
  [[nodiscard]] virtual StepState wait_until(TimePoint deadline) = 0;
};

// If it is null, there is nothing to wait for.
using StepEventPtr = std::shared_ptr<StepEvent>;

}  // namespace cairn
