// external_region(): describes memory that somebody else owns, such as an engine's tensor. Nothing here checks that the
// address is valid.
//
// Thread safety: safe from any thread.
// Ownership: the memory stays the owner's. The region holds `keep_alive`; the last holder of the region drops it, on
// whichever thread that is.
// Errors: no address, a size of 0, a range beyond the address space, kind kFile, GPU memory without a device number.
#pragma once

#include <cstdint>
#include <memory>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

struct ExternalMemory {
  void* base = nullptr;
  std::uint64_t size = 0;
  MemoryKind kind = MemoryKind::kDevice;  // kPinned only if the pages are registered with the driver
  int device = kNoDevice;                 // kDevice: the GPU; kPinned: the GPU that uses the pages, if known
  std::shared_ptr<void> keep_alive = {};  // null: the owner keeps the memory longer than the region
};

[[nodiscard]] Result<RegionPtr> external_region(ExternalMemory memory);

}  // namespace cairn
