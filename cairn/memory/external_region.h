// external_region(): memory of somebody else, such as an engine's tensor.
//
// Owner:    stays whose it is. What keeps it alive is held as long as the region, and let go by the last holder, on
//           whichever thread that is.
// Threads:  any.
// Fails:    no address, a size of 0, a range beyond the address space, a file, memory of a GPU without its number.
// Not promised: that the address is what it is said to be. Nothing here follows it.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

struct ExternalMemory {
  void* base = nullptr;
  std::uint64_t size = 0;
  MemoryKind kind = MemoryKind::kDevice;  // kPinned only for pages that the driver knows
  int device = kNoDevice;                 // kDevice: which GPU; kPinned: the one they are for, if any
  std::shared_ptr<void> keep_alive = {};  // none: the owner promises that the memory outlives the region
};

[[nodiscard]] Result<RegionPtr> external_region(ExternalMemory memory);

}  // namespace cairn
