// The checksum of a block whose parts are checked apart: by several ranks, or by several groups of layers of one rank.
//
//   state = number of parts; for each part, in order: state = mix(state + its checksum) + 0x9E3779B97F4A7C15
//
// Each step is a bijection, so a change of one part changes the whole. Also used for a single rank.
#pragma once

#include <span>

#include "cairn/transfer/checksum.h"

namespace cairn {

// Never 0, which stands for an unknown checksum.
[[nodiscard]] Checksum combine(std::span<const Checksum> parts);

}  // namespace cairn
