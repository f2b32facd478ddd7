// OnboardOptions: how blocks come up to the device.
#pragma once

#include <cstdint>

#include "cairn/base/clock.h"

namespace cairn {

struct OnboardOptions {
  // Blocks from disk are left in host memory on their way, for the next one who wants them. Otherwise straight.
  bool through_host = true;
  Duration deadline = std::chrono::seconds(5);  // of a load that names none
  std::uint32_t loads = 256;                    // under way at once; further ones are refused
  // Whether loading is weighed against computing again; needs prefill_tokens_per_second.
  bool weigh = true;
  double prefill_tokens_per_second = 0;  // of the engine; 0: not known, everything is loaded
};

}  // namespace cairn
