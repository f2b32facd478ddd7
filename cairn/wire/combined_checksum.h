// The sums of parts of a block that cannot be added up, because their rows are not numbered as in one whole: several groups of
// layers of a rank, and the copies that replicas keep. They become one number, which can be added to the sums of other ranks.
//
//   state = mix(salt + parts x 0x9E3779B97F4A7C15) + 0x9E3779B97F4A7C15; for each part, in order, and for its products and its words: state = mix(state + it) + 0x9E3779B97F4A7C15
//
// Each step is a bijection, so a change of one part changes the whole. The salt tells apart parts with the same bytes: the number
// of the rank, or of the replica.
#pragma once

#include <cstdint>
#include <span>

#include "cairn/transfer/checksum.h"

namespace cairn {

[[nodiscard]] BlockSums combine(std::span<const BlockSums> parts, std::uint64_t salt);

}  // namespace cairn
