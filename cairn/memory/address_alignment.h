// address_alignment(): the largest power of two that divides an address, at most the size of a huge page (2 MiB).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cairn {

[[nodiscard]] constexpr std::uint64_t address_alignment(std::uint64_t address) {
  constexpr int kMostBits = 21;  // nothing needs more
  return std::uint64_t{1} << std::min(std::countr_zero(address), kMostBits);
}

}  // namespace cairn
