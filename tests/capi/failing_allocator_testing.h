// An allocator that fails where it is told to: operator new of the whole program, the library included.
#pragma once

#include <cstddef>

// While it lives, an allocation of this thread fails: the n-th one alone, or that one and all after it. Other threads are not
// concerned.
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

// Of all threads, made and not freed.
[[nodiscard]] long live_allocations();
