// An allocator that fails on request. It replaces operator new of the whole program, including the library.
#pragma once

#include <cstddef>

// While it lives, allocations of this thread fail: only the n-th one, or that one and all later ones. Other threads are
// not affected.
class FailingAllocator {
 public:
  enum class Mode { kOnce, kFromThenOn };
  FailingAllocator(std::size_t n, Mode mode);
  FailingAllocator(const FailingAllocator&) = delete;
  FailingAllocator& operator=(const FailingAllocator&) = delete;
  ~FailingAllocator();

  // Whether an allocation failed.
  [[nodiscard]] static bool has_failed();
};

// Allocations of all threads that have not been freed.
[[nodiscard]] long live_allocations();
