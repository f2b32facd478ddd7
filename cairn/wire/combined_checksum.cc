#include "cairn/wire/combined_checksum.h"

#include <cstdint>

namespace cairn {

namespace {

// A bijection of 64 bits in which every bit changes many others.
std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 31;
  value *= 0xD6E8FEB86659FD93ULL;
  value ^= value >> 29;
  value *= 0xD6E8FEB86659FD93ULL;
  value ^= value >> 32;
  return value;
}

}  // namespace

Checksum combine(std::span<const Checksum> parts) {
  std::uint64_t state = parts.size();
  for (const Checksum part : parts) {
    state = mix(state + static_cast<std::uint64_t>(part)) + 0x9E3779B97F4A7C15ULL;
  }
  return Checksum{state == 0 ? 1 : state};
}

}  // namespace cairn
