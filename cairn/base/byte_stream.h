// ByteWriter, ByteReader: write and read messages as little-endian fields in a row. A list is a u32 count and its elements.
//
// Thread safety: one thread at a time.
// Ownership: the writer appends to the caller's vector; the reader borrows the caller's bytes.
// Errors: the reader takes untrusted bytes. A field that is not there reads as zero or empty, and good() is false from then
// on, so that a decoder checks once, at its end. It allocates nothing for elements whose bytes are not there.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cairn/base/check.h"

namespace cairn {

static_assert(std::endian::native == std::endian::little, "fields are copied as they lie in memory");

// A type that is sent as it is in memory: no pointers, no padding, and any bytes are a valid value.
template <typename T>
concept PlainField = std::has_unique_object_representations_v<T> && !std::same_as<T, bool> && !std::is_pointer_v<T>;

class ByteWriter {
 public:
  explicit ByteWriter(std::vector<std::byte>& out) : out_(&out) {}

  template <PlainField T>
  void put(const T& field) {
    raw(std::as_bytes(std::span<const T, 1>(&field, 1)));
  }
  void raw(std::span<const std::byte> bytes) {
    const std::size_t begin = out_->size();
    out_->resize(begin + bytes.size());
    if (!bytes.empty()) std::memcpy(out_->data() + begin, bytes.data(), bytes.size());
  }
  void count(std::size_t count) {
    CAIRN_CHECK(count <= std::numeric_limits<std::uint32_t>::max(), "lists on wires have 32-bit counts");
    put(static_cast<std::uint32_t>(count));
  }
  // The elements without a count, for lists that share one.
  template <PlainField T>
  void elements(const std::vector<T>& list) {
    raw(std::as_bytes(std::span(list)));
  }
  template <PlainField T>
  void list(const std::vector<T>& list) {
    count(list.size());
    elements(list);
  }
  void text(std::string_view text) {
    count(text.size());
    raw(std::as_bytes(std::span(text)));
  }

 private:
  std::vector<std::byte>* out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : left_(bytes) {}

  template <PlainField T>
  [[nodiscard]] T get() {
    T field{};
    const std::span<const std::byte> bytes = raw(sizeof(T));
    if (!bytes.empty()) std::memcpy(&field, bytes.data(), sizeof(T));
    return field;
  }
  [[nodiscard]] std::span<const std::byte> raw(std::size_t bytes) {
    if (bytes > left_.size()) {
      refuse();
      return {};
    }
    const std::span<const std::byte> taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  // The count of a list whose elements have at least `element_bytes` each; 0, and not good(), if so many cannot follow.
  [[nodiscard]] std::size_t count(std::size_t element_bytes) {
    const std::size_t count = get<std::uint32_t>();
    if (count <= left_.size() / element_bytes) return count;
    refuse();
    return 0;
  }
  template <PlainField T>
  [[nodiscard]] std::vector<T> elements(std::size_t count) {
    if (count > left_.size() / sizeof(T)) {
      refuse();
      return {};
    }
    std::vector<T> list(count);
    if (count > 0) std::memcpy(list.data(), raw(count * sizeof(T)).data(), count * sizeof(T));
    return list;
  }
  template <PlainField T>
  [[nodiscard]] std::vector<T> list() {
    return elements<T>(count(sizeof(T)));
  }
  [[nodiscard]] std::string text() {
    const std::span<const std::byte> bytes = raw(count(1));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  // Marks what was read as invalid; nothing more is read.
  void refuse() {
    good_ = false;
    left_ = {};
  }
  [[nodiscard]] bool good() const { return good_; }
  // good(), and all bytes were read.
  [[nodiscard]] bool ended_well() const { return good_ && left_.empty(); }

 private:
  std::span<const std::byte> left_;
  bool good_ = true;
};

}  // namespace cairn
