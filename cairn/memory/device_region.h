// device_region(): allocates memory of a GPU, in the primary context that engines use too.
//
// Thread safety: safe from any thread.
// Ownership: the region frees the memory; nothing may use it after that.
// Errors: a size of 0, no driver, no such GPU, or too little memory; the message says how much is free on that GPU.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

struct DeviceRegionOptions {
  std::uint64_t size = 0;
  int device = 0;
};

[[nodiscard]] Result<RegionPtr> device_region(const DeviceRegionOptions& options);

}  // namespace cairn
