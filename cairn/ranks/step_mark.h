// StepMark: how far a rank is with the engine's iterations: iteration n has begun there, or is computed.
//
// Does:     orders copies and the engine's steps: a copy that touches device blocks names the mark before which it must
//           not. What is loaded in iteration n waits for begun(n): the blocks were another's before. What is saved in
//           iteration n was computed by earlier ones, and waits for computed(n - 1).
// Threads:  a plain value.
#pragma once

#include <compare>
#include <cstdint>

namespace cairn {

class StepMark {
 public:
  // Before every other: a copy that touches no device block.
  constexpr StepMark() = default;
  [[nodiscard]] static constexpr StepMark begun(std::uint64_t iteration) { return StepMark(2 * iteration + 1); }
  [[nodiscard]] static constexpr StepMark computed(std::uint64_t iteration) { return StepMark(2 * iteration + 2); }

  // As it stands on wires.
  [[nodiscard]] constexpr std::uint64_t value() const { return value_; }
  [[nodiscard]] static constexpr StepMark from_value(std::uint64_t value) { return StepMark(value); }

  friend constexpr auto operator<=>(const StepMark&, const StepMark&) = default;

 private:
  constexpr explicit StepMark(std::uint64_t value) : value_(value) {}
  std::uint64_t value_ = 0;
};

}  // namespace cairn
