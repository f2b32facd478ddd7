// EventRing<T>: the last `capacity` records of an endless series, addressed by their number in the series.
//
// Does:     record n lies in cell n % capacity; a later one takes the place of the one `capacity` before it. Who uses
// it
//           knows which numbers are still there.
// Costs:    memory is taken and touched at creation; nothing allocates or faults afterwards.
// Threads:  a plain array: whoever shares it synchronises.
// Fails:    create() when the system has no memory to give.
#pragma once

#include <algorithm>
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
  [[nodiscard]] static Result<EventRing> create(std::size_t capacity) {
    Result<PageArray<T>> cells = PageArray<T>::create(capacity);
    if (!cells) {
      return Unexpected(std::move(cells).error());
    }
    if (capacity != 0) {
      std::memset(static_cast<void*>(cells->data()), 0, cells->bytes());
    }
    return EventRing(*std::move(cells));
  }

  [[nodiscard]] std::size_t capacity() const { return cells_.size(); }
  [[nodiscard]] std::size_t bytes() const { return cells_.bytes(); }

  [[nodiscard]] const T& operator[](std::uint64_t number) const { return cells_[number % cells_.size()]; }
  [[nodiscard]] T& operator[](std::uint64_t number) { return cells_[number % cells_.size()]; }

  // Makes records `number` and following, one for each item of `from`. Requires: from.size() <= capacity().
  template <typename From, typename Convert>
  void write(std::uint64_t number, std::span<const From> from, Convert convert) {
    if (from.empty()) {
      return;
    }
    T* cell = &cells_[number % cells_.size()];
    const T* const end = cells_.data() + cells_.size();
    for (const From& item : from) {
      *cell = convert(item);
      if (++cell == end) {
        cell = cells_.data();
      }
    }
  }

  // Copies out records `number` and following. Requires: they are there.
  void read(std::uint64_t number, std::span<T> out) const {
    if (out.empty()) {
      return;
    }
    const std::size_t first = number % cells_.size();
    const std::size_t before_end = std::min(out.size(), cells_.size() - first);
    std::copy_n(cells_.data() + first, before_end, out.data());
    std::copy_n(cells_.data(), out.size() - before_end, out.data() + before_end);
  }

 private:
  explicit EventRing(PageArray<T> cells) : cells_(std::move(cells)) {}

  PageArray<T> cells_;
};

}  // namespace cairn::internal
