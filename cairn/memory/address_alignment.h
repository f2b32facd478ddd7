// address_alignment(): the largest power of two that an address is a multiple of, up to that of a huge page.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cairn {

[[nodiscard]] constexpr std::uint64_t address_alignment(std::uint64_t address) {
  constexpr int kMostBits = 21;  // nothing cares for more
  return std::uint64_t{1} << std::min(std::countr_zero(address), kMostBits);
}

}  // namespace cairn
