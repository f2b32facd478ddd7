// MsgpackWriter, MsgpackReader: the part of MessagePack that engines write their events with. Internal.
//
// The writer uses the shortest form of every value, as msgspec, vLLM's library, does.
//
// Thread safety: one thread at a time.
// Ownership: the writer appends to the caller's string; the reader borrows the caller's bytes.
// Errors: the reader takes untrusted bytes. A value that is not there, or is of another type than the one asked for, reads as
// zero or empty, and good() is false from then on, so that a decoder checks once, at its end. It allocates nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::internal {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::string& out) : out_(&out) {}

  void nil() { byte(0xc0); }
  void unsigned_number(std::uint64_t value) {
    if (value < 0x80) {
      byte(value);
    } else if (value <= 0xff) {
      number<1>(0xcc, value);
    } else if (value <= 0xffff) {
      number<2>(0xcd, value);
    } else if (value <= 0xffffffff) {
      number<4>(0xce, value);
    } else {
      number<8>(0xcf, value);
    }
  }
  void signed_number(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (value >= 0) {
      unsigned_number(bits);
    } else if (value >= -32) {
      byte(bits & 0xff);
    } else if (value >= INT8_MIN) {
      number<1>(0xd0, bits);
    } else if (value >= INT16_MIN) {
      number<2>(0xd1, bits);
    } else if (value >= INT32_MIN) {
      number<4>(0xd2, bits);
    } else {
      number<8>(0xd3, bits);
    }
  }
  void real(double value) { number<8>(0xcb, std::bit_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    const std::size_t size = value.size();
    if (size < 32) {
      byte(0xa0 | size);
    } else if (size <= 0xff) {
      number<1>(0xd9, size);
    } else if (size <= 0xffff) {
      number<2>(0xda, size);
    } else {
      number<4>(0xdb, size);
    }
    out_->append(value);
  }
  void array(std::size_t size) { container(size, 0x90, 0xdc); }
  void map(std::size_t size) { container(size, 0x80, 0xde); }
  // A value that is MessagePack already.
  void raw(std::string_view value) { out_->append(value); }

 private:
  void byte(std::uint64_t value) { out_->push_back(static_cast<char>(value)); }
  template <int kBytes>
  void number(std::uint8_t tag, std::uint64_t value) {
    char bytes[kBytes + 1];
    bytes[0] = static_cast<char>(tag);
    for (int i = 0; i < kBytes; ++i) {
      bytes[1 + i] = static_cast<char>(value >> (8 * (kBytes - 1 - i)));
    }
    out_->append(bytes, sizeof bytes);
  }
  void container(std::size_t size, std::uint8_t small, std::uint8_t tag) {
    if (size < 16) {
      byte(small | size);
    } else if (size <= 0xffff) {
      number<2>(tag, size);
    } else {
      number<4>(tag + 1, size);
    }
  }

  std::string* out_;
};

class MsgpackReader {
 public:
  enum class Type : std::uint8_t { kNil, kFlag, kNumber, kReal, kText, kBytes, kArray, kMap, kOther, kEnd };

  explicit MsgpackReader(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  void fail() { good_ = false; }

  // Of the next value; kEnd if there is none.
  [[nodiscard]] Type type() const {
    if (!good_ || at_end()) {
      return Type::kEnd;
    }
    const std::uint8_t tag = here();
    if (tag < 0x80 || tag >= 0xe0 || (tag >= 0xcc && tag <= 0xd3)) {
      return Type::kNumber;
    }
    if (tag <= 0x8f || tag == 0xde || tag == 0xdf) {
      return Type::kMap;
    }
    if (tag <= 0x9f || tag == 0xdc || tag == 0xdd) {
      return Type::kArray;
    }
    if (tag <= 0xbf || (tag >= 0xd9 && tag <= 0xdb)) {
      return Type::kText;
    }
    if (tag == 0xc0) {
      return Type::kNil;
    }
    if (tag == 0xc2 || tag == 0xc3) {
      return Type::kFlag;
    }
    if (tag >= 0xc4 && tag <= 0xc6) {
      return Type::kBytes;
    }
    return tag == 0xca || tag == 0xcb ? Type::kReal : Type::kOther;
  }
  // Reads the next value if it is nil.
  [[nodiscard]] bool take_nil() {
    if (type() != Type::kNil) {
      return false;
    }
    ++at_;
    return true;
  }

  // A whole number. A negative one reads as its two's complement, with `is_negative` set.
  [[nodiscard]] std::uint64_t number(bool* is_negative = nullptr) {
    if (type() != Type::kNumber) {
      fail();
      return 0;
    }
    const std::uint8_t tag = take();
    if (is_negative != nullptr) {
      *is_negative = false;
    }
    if (tag < 0x80) {
      return tag;
    }
    std::int64_t value = static_cast<std::int8_t>(tag);  // of a short negative number
    if (tag < 0xd0) {
      return big_endian(std::size_t{1} << (tag - 0xcc));
    }
    if (tag <= 0xd3) {
      const std::size_t size = std::size_t{1} << (tag - 0xd0);
      const std::uint64_t bits = big_endian(size);
      const auto shift = static_cast<int>(64 - 8 * size);
      value = static_cast<std::int64_t>(bits << shift) >> shift;
    }
    if (is_negative != nullptr) {
      *is_negative = value < 0;
    }
    return static_cast<std::uint64_t>(value);
  }
  // A number that fits in 32 bits.
  [[nodiscard]] std::uint32_t small_number() {
    bool is_negative = false;
    const std::uint64_t value = number(&is_negative);
    if (is_negative || value > 0xffffffff) {
      fail();
      return 0;
    }
    return static_cast<std::uint32_t>(value);
  }
  [[nodiscard]] double real() {
    if (type() == Type::kNumber) {
      bool is_negative = false;
      const std::uint64_t value = number(&is_negative);
      return is_negative ? static_cast<double>(static_cast<std::int64_t>(value)) : static_cast<double>(value);
    }
    if (type() != Type::kReal) {
      fail();
      return 0;
    }
    if (take() == 0xca) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(big_endian(4)));
    }
    return std::bit_cast<double>(big_endian(8));
  }
  [[nodiscard]] std::string_view text() {
    if (type() != Type::kText) {
      fail();
      return {};
    }
    const std::uint8_t tag = take();
    return run(tag < 0xc0 ? tag & 0x1f : big_endian(std::size_t{1} << (tag - 0xd9)));
  }
  [[nodiscard]] std::string_view bytes() {
    if (type() != Type::kBytes) {
      fail();
      return {};
    }
    return run(big_endian(std::size_t{1} << (take() - 0xc4)));
  }
  // The number of elements that follow, at most one for each byte that is left; of pairs for map().
  [[nodiscard]] std::size_t array() { return container(Type::kArray, 0xdc, 1); }
  [[nodiscard]] std::size_t map() { return container(Type::kMap, 0xde, 2); }

  // Skips the next value, however deep it is. Returns its bytes.
  std::string_view skip() {
    const std::size_t begin = at_;
    for (std::size_t pending = 1; good_ && pending > 0; --pending) {
      switch (type()) {
        case Type::kNil:
        case Type::kFlag:
          ++at_;
          break;
        case Type::kNumber:
          (void)number();
          break;
        case Type::kReal:
          (void)real();
          break;
        case Type::kText:
          (void)text();
          break;
        case Type::kBytes:
          (void)bytes();
          break;
        case Type::kArray:
          pending += array();
          break;
        case Type::kMap:
          pending += 2 * map();
          break;
        case Type::kOther:
        case Type::kEnd:
          fail();
          break;
      }
    }
    return good_ ? bytes_.substr(begin, at_ - begin) : std::string_view();
  }

 private:
  [[nodiscard]] std::uint8_t here() const { return static_cast<std::uint8_t>(bytes_[at_]); }
  std::uint8_t take() {
    const std::uint8_t value = here();
    ++at_;
    return value;
  }
  std::uint64_t big_endian(std::size_t size) {
    std::uint64_t value = 0;
    for (const char byte : run(size)) {
      value = (value << 8) | static_cast<std::uint8_t>(byte);
    }
    return value;
  }
  std::string_view run(std::uint64_t size) {
    if (!good_ || size > bytes_.size() - at_) {
      fail();
      return {};
    }
    const std::string_view bytes = bytes_.substr(at_, size);
    at_ += size;
    return bytes;
  }
  std::size_t container(Type wanted, std::uint8_t tag16, std::size_t least_bytes) {
    if (type() != wanted) {
      fail();
      return 0;
    }
    const std::uint8_t tag = take();
    const std::uint64_t size = tag == tag16 ? big_endian(2) : tag == tag16 + 1 ? big_endian(4) : tag & 0x0f;
    if (size > (bytes_.size() - at_) / least_bytes) {
      fail();
      return 0;
    }
    return good_ ? size : 0;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

}  // namespace cairn::internal
