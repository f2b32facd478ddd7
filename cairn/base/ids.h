// Strong integer types for ids, so that one cannot be passed for another.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace cairn {

// A physical block of one pool: 0 to capacity - 1.
enum class BlockId : std::uint32_t {};
inline constexpr BlockId kNoBlock{std::numeric_limits<std::uint32_t>::max()};
[[nodiscard]] constexpr std::uint32_t index_of(BlockId block_id) { return static_cast<std::uint32_t>(block_id); }

// The tenant that a block is charged to: an index into the tenants of the pool.
enum class TenantId : std::uint8_t {};
inline constexpr TenantId kDefaultTenant{0};
[[nodiscard]] constexpr std::uint32_t index_of(TenantId tenant) { return static_cast<std::uint32_t>(tenant); }

// The tier of a block: G1 GPU memory, G2 pinned host memory, G3 local disk, G4 remote.
enum class CacheLevel : std::uint8_t { kG1 = 0, kG2 = 1, kG3 = 2, kG4 = 3 };
inline constexpr std::uint32_t kCacheLevels = 4;
[[nodiscard]] constexpr std::uint32_t index_of(CacheLevel level) { return static_cast<std::uint32_t>(level); }
[[nodiscard]] constexpr const char* to_string(CacheLevel level) {
  constexpr const char* kNames[kCacheLevels] = {"G1", "G2", "G3", "G4"};
  return kNames[index_of(level)];
}

}  // namespace cairn
