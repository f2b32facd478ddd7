// IoMethod: how files are read and written.
#pragma once

#include <cstdint>

namespace cairn {

enum class IoMethod : std::uint8_t {
  kBest,     // io_uring if it works, else threads
  kUring,    // io_uring, or fail
  kThreads,  // pread() and pwrite()
};

}  // namespace cairn
