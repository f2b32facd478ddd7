// Digest: 32 bytes of SHA-256, as the engines name blocks.
//
// Threads:  a plain value.
// Fails:    from_hex() for anything but 64 hexadecimal digits, kCorrupt.
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

  // Lower case, as engines write it; both cases are read.
  [[nodiscard]] std::string to_hex() const;
  [[nodiscard]] static Result<Digest> from_hex(std::string_view text);

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

}  // namespace cairn
