// MemoryProgress: how far the making of a large region has come.
#pragma once

#include <cstdint>
#include <functional>

namespace cairn {

// Called on the thread that asked for the region: bytes of work done and all there are. Never less than before; at last
// all, if the region is made. Touching and registering a page count as two.
using MemoryProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace cairn
