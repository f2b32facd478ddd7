// elsewhere_region(): bytes that other processes hold. This one keeps account of them and never touches them.
//
// Does:     has a kind and a size, so that layouts and plans can be made of it; base() and file() are none.
// Owner:    nobody: nothing is allocated.
// Threads:  any.
// Fails:    a size of 0, or beyond the address space.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

[[nodiscard]] Result<RegionPtr> elsewhere_region(MemoryKind kind, std::uint64_t size);

}  // namespace cairn
