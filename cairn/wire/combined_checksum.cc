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

BlockSums combine(std::span<const BlockSums> parts, std::uint64_t salt) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  std::uint64_t state = mix(salt + parts.size() * kStep) + kStep;
  for (const BlockSums& part : parts) {
    for (const std::uint64_t number : {part.products, part.words}) {
      state = mix(state + number) + kStep;
    }
  }
  return {.products = state, .words = 0};
}

}  // namespace cairn
