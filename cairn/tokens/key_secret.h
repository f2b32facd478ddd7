// KeySecret: the 32 secret bytes that the keys of a deployment are made with. With the secret the key of any block can be
// computed; without it not a single one can be predicted.
//
// There is no function that prints a secret. Its bytes are overwritten in memory when it is destroyed.
//
// Thread safety: a plain value.
// Errors: from_hex() and from_file() if the text is not 64 hexadecimal digits; the message never shows the text.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

class KeySecret {
 public:
  static constexpr std::size_t kBytes = 32;
  using Bytes = std::array<std::byte, kBytes>;

  explicit KeySecret(const Bytes& bytes) : bytes_(bytes) {}
  KeySecret(const KeySecret&) = default;
  KeySecret& operator=(const KeySecret&) = default;
  ~KeySecret();

  // From the system's random numbers.
  [[nodiscard]] static KeySecret random();
  [[nodiscard]] static Result<KeySecret> from_hex(std::string_view text);
  // Reads a file that contains the digits, and nothing else but white space around them.
  [[nodiscard]] static Result<KeySecret> from_file(const std::string& path);

  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const { return bytes_; }
  // Compares in constant time.
  friend bool operator==(const KeySecret& one, const KeySecret& other);

 private:
  Bytes bytes_;
};

}  // namespace cairn
