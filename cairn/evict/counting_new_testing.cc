#include "cairn/evict/counting_new_testing.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::uint64_t allocations = 0;

void* take(std::size_t size) noexcept {
  ++allocations;
  return std::malloc(size);
}
void* take(std::size_t size, std::align_val_t alignment) noexcept {
  ++allocations;
  const auto align = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}
void* checked(void* memory) { return memory != nullptr ? memory : throw std::bad_alloc(); }

}  // namespace

std::uint64_t cairn::allocation_count() { return allocations; }

// All forms, since the sanitizers replace those that are left out.
// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
void* operator new(std::size_t n) { return checked(take(n)); }
void* operator new[](std::size_t n) { return checked(take(n)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take(n); }
void* operator new(std::size_t n, std::align_val_t a) { return checked(take(n, a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return checked(take(n, a)); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take(n, a); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take(n, a); }

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
// NOLINTEND(readability-inconsistent-declaration-parameter-name)
