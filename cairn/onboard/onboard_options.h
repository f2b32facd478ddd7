// OnboardOptions: how blocks come up to the device.
#pragma once

#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

struct OnboardOptions {
  // Blocks from disk go through host memory and stay there for the next load. Otherwise they go straight to the device.
  bool through_host = true;
  Duration deadline = std::chrono::seconds(5);  // of a load that has none
  std::uint32_t loads = 256;                    // in flight at once; further ones are refused
  // Whether to load only what is faster to load than to compute; needs prefill_tokens_per_second.
  bool weigh = true;
  double prefill_tokens_per_second = 0;  // of the engine; 0 if it is not known: everything is loaded
};

}  // namespace cairn
