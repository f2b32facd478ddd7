#include "cairn/evict/counting_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::uint64_t allocations = 0;

void* counted(void* memory) {
  ++allocations;
  return memory != nullptr ? memory : throw std::bad_alloc();
}

}  // namespace

std::uint64_t cairn::allocation_count() { return allocations; }

// The forms for arrays and those that do not throw come down to these.
void* operator new(std::size_t size) { return counted(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(align, (size + align - 1) / align * align));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
