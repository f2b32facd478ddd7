// Marks of in-step saves: saves of what iteration n itself computes. Each layer may be read once it is computed, and the save
// counts only once all of the iteration is.
//
// Such a mark is computed(n) with one more bit, so that it travels as every other mark does: EngineBlocks, Transfer, message
// to the ranks. It is not compared with other marks; step_of() is. Iterations from 2^62 on have the bit in all of their marks:
// the leader never confirms their saves, so nothing is saved of them.
#pragma once

#include <cstdint>

#include "cairn/base/ids.h"

namespace cairn {

inline constexpr std::uint64_t kInStepBit = std::uint64_t{1} << 63U;

[[nodiscard]] constexpr StepMark in_step_mark(std::uint64_t iteration) {
  return StepMark::from_value(StepMark::computed(iteration).value() | kInStepBit);
}
[[nodiscard]] constexpr bool is_in_step(StepMark mark) { return (mark.value() & kInStepBit) != 0; }
// The mark itself or, of an in-step save, computed() of its iteration.
[[nodiscard]] constexpr StepMark step_of(StepMark mark) { return StepMark::from_value(mark.value() & ~kInStepBit); }
// The mark before computed(n): begun(n).
[[nodiscard]] constexpr StepMark begin_of(StepMark computed) { return StepMark::from_value(computed.value() - 1); }

}  // namespace cairn
