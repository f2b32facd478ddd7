// CborWriter: writes the few forms of canonical CBOR that block digests need, through a small buffer, to a sink (anything
// with add(bytes)). Allocates nothing. Internal.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace cairn::internal {

template <typename Sink>
class CborWriter {
 public:
  explicit CborWriter(Sink& sink) : sink_(sink) {}
  CborWriter(const CborWriter&) = delete;
  CborWriter& operator=(const CborWriter&) = delete;
  ~CborWriter() { flush(); }

  void array(std::uint64_t size) { head(kArray, size); }
  void integer(std::int64_t value) {
    value < 0 ? head(kNegative, static_cast<std::uint64_t>(-1 - value)) : head(0, static_cast<std::uint64_t>(value));
  }
  void bytes(std::span<const std::byte> value) {
    head(kBytes, value.size());
    raw(value);
  }
  void text(std::string_view value) {
    head(kText, value.size());
    raw(std::as_bytes(std::span(value)));
  }
  void null() {
    make_room();
    put(0xf6);
  }

 private:
  static constexpr std::uint8_t kNegative = 1 << 5;
  static constexpr std::uint8_t kBytes = 2 << 5;
  static constexpr std::uint8_t kText = 3 << 5;
  static constexpr std::uint8_t kArray = 4 << 5;
  static constexpr std::size_t kLongestHead = 9;

  // The shortest form that holds the number, as canonical CBOR requires.
  void head(std::uint8_t kind, std::uint64_t number) {
    make_room();
    if (number < 24) {
      put(kind | number);
    } else if (number <= std::numeric_limits<std::uint8_t>::max()) {
      put(kind | 24U);
      put(number);
    } else if (number <= std::numeric_limits<std::uint16_t>::max()) {
      put(kind | 25U);
      put_big_endian(number, 2);
    } else if (number <= std::numeric_limits<std::uint32_t>::max()) {
      put(kind | 26U);
      put_big_endian(number, 4);
    } else {
      put(kind | 27U);
      put_big_endian(number, 8);
    }
  }
  void raw(std::span<const std::byte> value) {
    if (value.size() > buffer_.size() - used_) {
      flush();
    }
    if (value.size() > buffer_.size()) {
      sink_.add(value);
      return;
    }
    std::copy(value.begin(), value.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += value.size();
  }
  void put(std::uint64_t byte) { buffer_[used_++] = static_cast<std::byte>(byte); }
  void put_big_endian(std::uint64_t number, std::uint32_t size) {
    for (std::uint32_t i = size; i-- > 0;) {
      put(number >> (8 * i) & 0xff);
    }
  }
  void make_room() {
    if (buffer_.size() - used_ < kLongestHead) {
      flush();
    }
  }
  void flush() {
    sink_.add(std::span<const std::byte>(buffer_.data(), used_));
    used_ = 0;
  }

  Sink& sink_;
  std::size_t used_ = 0;
  std::array<std::byte, 512> buffer_;
};

}  // namespace cairn::internal
