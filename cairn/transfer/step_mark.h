// StepMark: a point in the engine's work: iteration n has begun, or is computed.
//
// Orders copies and the engine's steps. A copy that touches device blocks carries the mark before which it must not begin:
// a load for iteration n waits for begun(n), because its blocks held something else before; a save that is given out in
// iteration n reads what earlier iterations computed, and waits for computed(n - 1).
#pragma once

#include <compare>
#include <cstdint>

namespace cairn {

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
