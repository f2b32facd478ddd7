// elsewhere_region(): a region that stands for memory of other processes. It has a kind and a size, so that layouts and
// plans can be made for it, but no address and no file: this process never touches the bytes.
//
// Thread safety: safe from any thread.
// Errors: a size of 0, or one larger than the address space.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

[[nodiscard]] Result<RegionPtr> elsewhere_region(MemoryKind kind, std::uint64_t size);

}  // namespace cairn
