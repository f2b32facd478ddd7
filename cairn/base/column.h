// Column<T>: read access to one member of every record of an array, by index. Lets a component show a part of its table
// without showing the records.
#pragma once

#include <cstddef>

namespace cairn {

template <typename T>
class Column {
 public:
  Column() = default;
  // `first` is the member of the first record. The records are `stride` bytes apart and outlive the column.
  Column(const T* first, std::size_t stride) : first_(reinterpret_cast<const std::byte*>(first)), stride_(stride) {}

  [[nodiscard]] const T& operator[](std::size_t i) const { return *reinterpret_cast<const T*>(first_ + i * stride_); }

 private:
  const std::byte* first_ = nullptr;
  std::size_t stride_ = 0;
};

}  // namespace cairn
