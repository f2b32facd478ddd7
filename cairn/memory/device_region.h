// device_region(): memory of a GPU.
//
// Does:     allocates it in the GPU's primary context, which is the one that engines use too.
// Owner:    the region frees it; with it any use must be over.
// Threads:  any.
// Fails:    a size of 0, no driver, no such GPU, no memory: says how much is free on that GPU.
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
