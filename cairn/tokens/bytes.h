// Big-endian integers, as keys are sent and stored. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn::internal {

inline void store_be64(std::span<std::byte, 8> out, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) {
    out[i] = static_cast<std::byte>(value >> (56 - 8 * i));
  }
}

[[nodiscard]] inline std::uint64_t load_be64(std::span<const std::byte, 8> bytes) {
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) {
    value = (value << 8) | std::to_integer<std::uint64_t>(byte);
  }
  return value;
}

}  // namespace cairn::internal
