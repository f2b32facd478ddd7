// Test patterns for blocks: bytes that depend on a seed, which can be recognised in any arrangement. Every word depends on
// the seed, the row and the place in the row, so a wrong block, a misplaced row and a flipped bit are all found.
//
// Requires: the layout is in host memory and has the block.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/layout/block_layout.h"

namespace cairn {

void write_pattern(const BlockLayout& layout, std::uint32_t block, std::uint64_t seed);

// The first row whose bytes are not those of the seed; std::nullopt if all are right.
[[nodiscard]] std::optional<std::uint64_t> find_stranger(const BlockLayout& layout, std::uint32_t block,
                                                         std::uint64_t seed);

}  // namespace cairn
