// StepEvent: something that an engine's device is still doing, and that is over at some time: a CUDA event, for one.
//
// Owner:    shared by the engine and whoever waits.
// Threads:  any.
#pragma once

#include <memory>

#include "cairn/base/clock.h"

namespace cairn {

class StepEvent {
 public:
  virtual ~StepEvent() = default;
  [[nodiscard]] virtual bool is_over() = 0;
  // Waits on the calling thread, by the machine's clock; whether it is over. An event that failed is over: what it
  // was to make ready is verified by those who read it.
  [[nodiscard]] virtual bool wait_until(TimePoint deadline) = 0;
};

// None: over already.
using StepEventPtr = std::shared_ptr<StepEvent>;

}  // namespace cairn
