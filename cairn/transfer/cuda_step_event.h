// cuda_step_event(): a CUDA event that an engine recorded, as a StepEvent.
//
// Asks the driver whether the event is over. Waits by asking again after pauses that grow, so that no core is kept busy.
//
// Thread safety: any thread may call.
// Ownership:     `keep_alive`, or the engine, keeps the CUDA event until nobody waits any more. An event that is recorded
//                again is over when the later recording is.
// Errors:        there is no driver, or no GPU of that number. Every answer of the driver but "success" and "not ready" is a
//                failed event, as is a GPU whose context cannot be entered.
#pragma once

#include <memory>

#include "cairn/base/result.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

// `event`: a CUevent, which a cudaEvent_t is too, of the GPU's primary context.
[[nodiscard]] Result<StepEventPtr> cuda_step_event(void* event, int device, std::shared_ptr<void> keep_alive = {});

// What cuEventQuery()'s CUresult says of the event.
[[nodiscard]] StepState step_state_of(int code);

}  // namespace cairn
