// What cuda_step_event() makes of the driver's answers, for its test.
#pragma once

#include "cairn/transfer/step_event.h"

namespace cairn {

// What cuEventQuery()'s CUresult says of the event.
[[nodiscard]] StepState step_state_of(int code);

}  // namespace cairn
