// PageArray<T>: a fixed number of zero-initialised T in mapped pages, huge pages if the system has them.
//
// For tables of millions of small records that are read at random: with huge pages such a read does not also miss in the
// TLB. The system provides memory when a page is first touched.
//
// Thread safety: that of a plain array.
// Ownership: owns its pages; move-only.
// Errors: create() fails if the system has no address space or memory; the message names the size.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "cairn/base/result.h"

namespace cairn {

namespace internal {

// Maps zeroed pages. `bytes` may be 0.
[[nodiscard]] Result<void*> map_pages(std::size_t bytes);
void unmap_pages(void* pages, std::size_t bytes);

}  // namespace internal

template <typename T>
class PageArray {
  static_assert(std::is_trivially_copyable_v<T>, "pages are mapped as zero bytes and never constructed");

 public:
  [[nodiscard]] static Result<PageArray> create(std::size_t count) {
    CAIRN_TRY_ASSIGN(void* pages, internal::map_pages(count * sizeof(T)));
    return PageArray(static_cast<T*>(pages), count);
  }

  PageArray() = default;
  PageArray(PageArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageArray& operator=(PageArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;
  ~PageArray() { internal::unmap_pages(data_, bytes()); }

  [[nodiscard]] T& operator[](std::size_t i) { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data_[i]; }
  [[nodiscard]] T* data() { return data_; }
  [[nodiscard]] const T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }

 private:
  PageArray(T* data, std::size_t size) : data_(data), size_(size) {}

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace cairn
