// EventRing<T>: the latest records of an endless series, addressed by their number in the series. A record replaces the one
// capacity() before it; the user knows which numbers are still there. Internal.
//
// Thread safety: that of a plain array.
// Errors: create() fails if the system has no memory.
// Complexity: memory is allocated and touched by create(); nothing allocates or faults afterwards. The capacity is a power
// of two, so that finding a record takes no division.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "cairn/base/page_array.h"
#include "cairn/base/result.h"

namespace cairn::internal {

template <typename T>
class EventRing {
 public:
  // For at least `capacity` records; a ring of 0 holds none.
  [[nodiscard]] static Result<EventRing> create(std::size_t capacity) {
    CAIRN_TRY_ASSIGN(PageArray<T> cells, PageArray<T>::create(capacity == 0 ? 0 : std::bit_ceil(capacity)));
    if (capacity != 0) {
      std::memset(static_cast<void*>(cells.data()), 0, cells.bytes());
    }
    return EventRing(std::move(cells));
  }

  [[nodiscard]] std::size_t capacity() const { return cells_.size(); }
  [[nodiscard]] std::size_t bytes() const { return cells_.bytes(); }

  [[nodiscard]] const T& operator[](std::uint64_t number) const { return cells_[cell_of(number)]; }
  [[nodiscard]] T& operator[](std::uint64_t number) { return cells_[cell_of(number)]; }

  // Writes records `number` and following, one for each item of `from`. Requires: from.size() <= capacity().
  template <typename From, typename Convert>
  void write(std::uint64_t number, std::span<const From> from, Convert convert) {
    const std::size_t first = cell_of(number);
    const std::size_t before_end = std::min(from.size(), capacity() - first);
    std::transform(from.begin(), from.begin() + before_end, cells_.data() + first, convert);
    std::transform(from.begin() + before_end, from.end(), cells_.data(), convert);
  }

  // Copies out records `number` and following. Requires: they are there.
  void read(std::uint64_t number, std::span<T> out) const {
    const std::size_t first = cell_of(number);
    const std::size_t before_end = std::min(out.size(), capacity() - first);
    std::copy_n(cells_.data() + first, before_end, out.data());
    std::copy_n(cells_.data(), out.size() - before_end, out.data() + before_end);
  }

 private:
  explicit EventRing(PageArray<T> cells) : cells_(std::move(cells)) {}

  [[nodiscard]] std::size_t cell_of(std::uint64_t number) const { return number & (cells_.size() - 1); }

  PageArray<T> cells_;
};

}  // namespace cairn::internal
