// MemoryProgress: a callback that reports how much of a large region is ready.
#pragma once

#include <cstdint>
#include <functional>

namespace cairn {

// Called on the thread that makes the region, with the bytes of work done and in total. `done` never shrinks, and reaches
// `total` if the region is made. Touching a page and registering it count separately.
using MemoryProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

}  // namespace cairn
