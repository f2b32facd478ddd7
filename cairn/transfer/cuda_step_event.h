// cuda_step_event(): a CUDA event that an engine recorded, as a StepEvent.
//
// Does:     asks the driver whether the event is over; waits by asking again after pauses that grow, so that no core is
//           kept busy.
// Owner:    the engine's event: `keep_alive`, or the engine, keeps it until nobody waits any more. Recorded again, it is
//           over when that is.
// Threads:  any.
// Fails:    no driver, or no GPU of that number. An event that the driver calls broken is over, as StepEvent says.
#pragma once

#include <memory>

#include "cairn/base/result.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

// `event`: a CUevent, which a cudaEvent_t is too, of the GPU's primary context.
[[nodiscard]] Result<StepEventPtr> cuda_step_event(void* event, int device, std::shared_ptr<void> keep_alive = {});

}  // namespace cairn
