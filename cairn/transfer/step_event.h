// StepEvent: work that the device of an engine has not finished yet, such as a CUDA event.
//
// Thread safety: any thread may call.
// Ownership: shared by the engine and the threads that wait.
// Errors: an event may fail. Nobody then knows whether the work before it was done, so nothing that depends on it
// may be copied.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

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
  // Waits on the calling thread until the event has ended or has failed, or until `deadline` of steady_clock() has
  // passed.
  [[nodiscard]] virtual StepState wait_until(TimePoint deadline) = 0;
};

// If it is null, there is nothing to wait for.
using StepEventPtr = std::shared_ptr<StepEvent>;

// A CUDA event that an engine recorded, as a StepEvent. `event`: a CUevent, which a cudaEvent_t is too, of the GPU's primary
// context.
//
// Asks the driver whether the event has ended. Waits by asking again after pauses that grow, so that no core is kept busy.
// Ownership: `keep_alive`, or the engine, keeps the CUDA event until the last wait has ended. An event that is recorded again
// has ended when the later recording has.
// Errors: there is no driver, or no GPU of that number. Every answer of the driver but "success" and "not ready" is a failed
// event, as is a GPU whose context cannot be entered.
[[nodiscard]] Result<StepEventPtr> cuda_step_event(void* event, int device, std::shared_ptr<void> keep_alive = {});

}  // namespace cairn
