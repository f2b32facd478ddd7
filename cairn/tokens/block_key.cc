#include "cairn/tokens/block_key.h"

#include "cairn/base/str_cat.h"

namespace cairn {

Result<BlockKey> BlockKey::make(std::uint64_t position, SequenceHash current, SequenceHash parent) {
  if (position > kMaxPosition) {
    return fail(ErrorCode::kOutOfRange, str_cat("block position ", position, " is beyond ", kMaxPosition,
                                                ", the last one a block key can hold; use larger blocks"));
  }
  return make_checked(static_cast<std::uint32_t>(position), current, parent);
}

Result<BlockKey> BlockKey::extend(BlockHash child) const {
  return make(std::uint64_t{position()} + 1, chain_hash(sequence_hash(), child), sequence_hash());
}

}  // namespace cairn
