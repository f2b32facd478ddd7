// The checks every batch of consecutive blocks begins with, whatever hashes them. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"

namespace cairn::internal {

// Fails: a block size of 0.
[[nodiscard]] Status check_block_size(std::uint32_t block_size);
// Fails: `room` places of the output called `what` do not hold `count`.
[[nodiscard]] Status check_room(std::size_t count, std::size_t room, std::string_view what);
// Fails: one of `count` blocks from position `first` on is beyond what a key can hold.
[[nodiscard]] Status check_positions(std::uint64_t first, std::size_t count);
// The position of the first of `count` blocks after `parent`; the same failure.
[[nodiscard]] Result<std::uint32_t> first_position(const std::optional<BlockKey>& parent, std::size_t count);

// Fails: `position` is not the one after the parent's, or 0 without a parent, or is beyond what a key can hold.
[[nodiscard]] Status check_follows(const std::optional<BlockKey>& parent, std::uint64_t position);

}  // namespace cairn::internal
