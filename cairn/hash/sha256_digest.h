// Digest: the 32 bytes of a SHA-256.
//
// Thread safety: a plain value.
// Errors: from_hex() returns kCorrupt for anything but 64 hexadecimal digits.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

struct Digest {
  std::array<std::byte, 32> bytes{};

  // Writes lower case; reads both.
  [[nodiscard]] std::string to_hex() const;
  [[nodiscard]] static Result<Digest> from_hex(std::string_view text);

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

}  // namespace cairn
