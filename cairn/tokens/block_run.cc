#include "cairn/tokens/block_run.h"

#include "cairn/base/str_cat.h"

namespace cairn::internal {

Status check_block_size(std::uint32_t block_size) {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "block size is 0; give the tokens per block");
  }
  return Status();
}

Status check_room(std::size_t count, std::size_t room, std::string_view what) {
  if (room < count) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(count, " blocks do not fit into ", room, " ", what, "; give one for each full block"));
  }
  return Status();
}

Status check_positions(std::uint64_t first, std::size_t count) {
  constexpr std::uint64_t kPositions = std::uint64_t{BlockKey::kMaxPosition} + 1;
  if (first > kPositions || count > kPositions - first) {
    return fail(ErrorCode::kOutOfRange,
                str_cat(count, " blocks from position ", first, " on end beyond ", BlockKey::kMaxPosition,
                        ", the last one a block key can hold; use larger blocks"));
  }
  return Status();
}

Result<std::uint32_t> first_position(const std::optional<BlockKey>& parent, std::size_t count) {
  const std::uint32_t first = parent ? parent->position() + 1 : 0;
  CAIRN_TRY(check_positions(first, count));
  return first;
}

Status check_follows(const std::optional<BlockKey>& parent, std::uint64_t position) {
  const std::uint64_t expected = parent ? std::uint64_t{parent->position()} + 1 : 0;
  if (position != expected) {
    return fail(ErrorCode::kInvalidArgument,
                parent
                    ? str_cat("a block at position ", position, " does not follow its parent at position ",
                              parent->position(), "; give the key of the block before it")
                    : str_cat("a block at position ", position, " has no parent; give the key of the block before it"));
  }
  return check_positions(position, 1);
}

}  // namespace cairn::internal
