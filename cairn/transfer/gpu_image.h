// The compiled kernels, as the driver loads them: code for compute capability 8.0, 9.0 and 10.0, and PTX for what comes.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::gpu {

// Empty in a library that was built where there was no CUDA compiler.
[[nodiscard]] std::span<const std::byte> image();

}  // namespace cairn::gpu
