// Strong integer types for ids and marks, so that one cannot be passed for another.
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

// A point in the engine's work: iteration n has begun, or is computed. Orders copies and the engine's steps.
//
// A copy that touches device blocks carries the mark before which it must not begin: a load for iteration n waits for
// begun(n), because its blocks held something else before; a save that is given out in iteration n reads what earlier
// iterations computed, and waits for computed(n - 1).
class StepMark {
 public:
  // Earlier than every other mark: the copy waits for no step.
  constexpr StepMark() = default;
  [[nodiscard]] static constexpr StepMark begun(std::uint64_t iteration) { return StepMark(2 * iteration + 1); }
  [[nodiscard]] static constexpr StepMark computed(std::uint64_t iteration) { return StepMark(2 * iteration + 2); }

  // As it is encoded in messages.
  [[nodiscard]] constexpr std::uint64_t value() const { return value_; }
  [[nodiscard]] static constexpr StepMark from_value(std::uint64_t value) { return StepMark(value); }

  friend constexpr auto operator<=>(const StepMark&, const StepMark&) = default;

 private:
  constexpr explicit StepMark(std::uint64_t value) : value_(value) {}
  std::uint64_t value_ = 0;
};

}  // namespace cairn
