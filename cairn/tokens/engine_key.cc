#include "cairn/tokens/engine_key.h"

#include "cairn/base/str_cat.h"

namespace cairn {

Result<BlockKey> adopt_hash(NamespaceId ns, const std::optional<BlockKey>& parent, std::uint64_t engine_hash,
                            std::uint64_t position) {
  const std::uint64_t expected = parent ? std::uint64_t{parent->position()} + 1 : 0;
  if (position != expected) {
    return fail(ErrorCode::kInvalidArgument,
                parent
                    ? str_cat("a block at position ", position, " does not follow its parent at position ",
                              parent->position(), "; give the key of the block before it")
                    : str_cat("a block at position ", position, " has no parent; give the key of the block before it"));
  }
  return BlockKey::make(position, SequenceHash{engine_hash ^ value_of(ns)},
                        parent ? parent->sequence_hash() : SequenceHash{0});
}

}  // namespace cairn
