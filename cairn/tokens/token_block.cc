#include "cairn/tokens/token_block.h"

#include "cairn/base/str_cat.h"
#include "cairn/tokens/block_run.h"

namespace cairn {

Result<PartialTokenBlock> PartialTokenBlock::create(std::uint32_t block_size, const KeyHasher& hasher,
                                                    const std::optional<BlockKey>& parent) {
  CAIRN_TRY(internal::check_block_size(block_size));
  CAIRN_TRY(hasher.check_hashes_tokens());
  return PartialTokenBlock(block_size, hasher, parent);
}

Status PartialTokenBlock::push(std::span<const Token> tokens) {
  if (tokens.size() > remaining()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(tokens.size(), " tokens do not fit into the block at position ", position(), ", which has ",
                        remaining(), " of ", block_size_, " places left; commit it when it is full"));
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return Status();
}

std::optional<Token> PartialTokenBlock::pop() {
  if (tokens_.empty()) {
    return std::nullopt;
  }
  const Token last = tokens_.back();
  tokens_.pop_back();
  return last;
}

Result<TokenBlock> PartialTokenBlock::commit() {
  if (remaining() != 0) {
    return fail(ErrorCode::kFailedPrecondition, str_cat("the block at position ", position(), " has ", size(), " of ",
                                                        block_size_, " tokens; push the rest before it is committed"));
  }
  BlockKey key;
  BlockHash hash{};
  CAIRN_TRY(hash_blocks(tokens_, block_size_, hasher_, parent_, {&key, 1}, {&hash, 1}));
  const std::optional<SequenceHash> parent =
      parent_ ? std::optional<SequenceHash>(parent_->sequence_hash()) : std::nullopt;
  TokenBlock block(std::exchange(tokens_, {}), hash, key, parent);
  parent_ = key;
  return block;
}

}  // namespace cairn
