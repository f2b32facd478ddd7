// The checks every batch of consecutive blocks begins with, whatever hashes them. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn::internal {

// How many full blocks the tokens hold. Fails: a block size of 0.
[[nodiscard]] Result<std::size_t> count_blocks(std::size_t tokens, std::uint32_t block_size);
// Fails: `room` places of the output called `what` do not hold `count`.
[[nodiscard]] Status check_room(std::size_t count, std::size_t room, std::string_view what);
// The position of the first of `count` blocks after `parent`. Fails: one of them is beyond what a key can hold.
[[nodiscard]] Result<std::uint32_t> first_position(const std::optional<BlockKey>& parent, std::size_t count);

}  // namespace cairn::internal
