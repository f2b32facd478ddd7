// Counts the allocations of a test program that counting_new.cc is linked into.
#pragma once

#include <cstdint>

namespace cairn {

// Calls of any operator new since the program began. For programs of one thread.
[[nodiscard]] std::uint64_t allocation_count();

}  // namespace cairn
