// Blocks whose bytes follow from a seed: written, and recognised wherever they turn up, in whatever arrangement.
//
// Does:     every word of every row depends on the seed and on where in the block it stands, so that a block of another
//           seed, a row in another's place or a single changed bit is seen.
// Threads:  pure, but for the memory of the block.
// Requires: a layout in host memory, and a block of it.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/layout/block_layout.h"

namespace cairn {

void write_pattern(const BlockLayout& layout, std::uint32_t block, std::uint64_t seed);

// The first row that is not what the seed says, and none if all are.
[[nodiscard]] std::optional<std::uint64_t> find_stranger(const BlockLayout& layout, std::uint32_t block,
                                                         std::uint64_t seed);

}  // namespace cairn
