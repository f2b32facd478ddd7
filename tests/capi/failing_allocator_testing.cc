#include "tests/capi/failing_allocator_testing.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

struct Plan {
  bool is_armed = false;
  bool has_failed = false;
  std::size_t left = 0;  // allocations before the one that fails
  FailingAllocator::Mode mode = FailingAllocator::Mode::kOnce;
};
constinit thread_local Plan plan;
constinit std::atomic<long> live{0};

bool fails() {
  if (!plan.is_armed) {
    return false;
  }
  if (plan.left > 0) {
    --plan.left;
    return false;
  }
  if (plan.has_failed && plan.mode == FailingAllocator::Mode::kOnce) {
    return false;
  }
  plan.has_failed = true;
  return true;
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (fails()) {
    return nullptr;
  }
  const std::size_t size = bytes == 0 ? 1 : bytes;
  void* const made = alignment <= alignof(std::max_align_t)
                         ? std::malloc(size)
                         : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (made != nullptr) {
    live.fetch_add(1, std::memory_order_relaxed);
  }
  return made;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment = 0) {
  void* const made = allocate(bytes, alignment);
  if (made == nullptr) {
    throw std::bad_alloc();
  }
  return made;
}

void release(void* memory) noexcept {
  if (memory != nullptr) {
    live.fetch_sub(1, std::memory_order_relaxed);
    std::free(memory);
  }
}

}  // namespace

FailingAllocator::FailingAllocator(std::size_t n, Mode mode) { plan = {.is_armed = true, .left = n, .mode = mode}; }
FailingAllocator::~FailingAllocator() { plan.is_armed = false; }
bool FailingAllocator::has_failed() { return plan.has_failed; }

long live_allocations() { return live.load(std::memory_order_relaxed); }

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
