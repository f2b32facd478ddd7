// Checks of the arguments of functions that name consecutive blocks. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn::internal {

// Fails if the block size is 0.
[[nodiscard]] Status check_block_size(std::uint32_t block_size);
// Fails if the output called `what` has fewer than `count` places.
[[nodiscard]] Status check_room(std::size_t count, std::size_t room, std::string_view what);
// Fails if one of `count` blocks from position `first` on has a position that a key cannot hold.
[[nodiscard]] Status check_positions(std::uint64_t first, std::size_t count);
// The position of the first of `count` blocks after `parent`. Fails like check_positions().
[[nodiscard]] Result<std::uint32_t> first_position(const std::optional<BlockKey>& parent, std::size_t count);

// Fails if `position` is not the one after the parent's (0 without a parent), or one that a key cannot hold.
[[nodiscard]] Status check_follows(const std::optional<BlockKey>& parent, std::uint64_t position);

}  // namespace cairn::internal
