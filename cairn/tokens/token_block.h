// TokenBlock: a full block of tokens with its hashes and key. TokenBlockView: the same over the tokens of a sequence
// (token_sequence.h), valid until the sequence changes. PartialTokenBlock: a block that is being filled; commit() turns it
// into a TokenBlock and continues with the empty block after it.
//
// Thread safety: plain values.
// Errors: too many tokens, a commit before the block is full, a position that a key cannot hold. A call that fails has no
// effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

template <typename Tokens>
class BasicTokenBlock {
 public:
  // `parent` is the sequence hash of the previous block; std::nullopt at position 0.
  BasicTokenBlock(Tokens tokens, BlockHash block_hash, const BlockKey& key, std::optional<SequenceHash> parent)
      : tokens_(std::move(tokens)), block_hash_(block_hash), key_(key), parent_(parent) {}

  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }
  [[nodiscard]] BlockHash block_hash() const { return block_hash_; }
  [[nodiscard]] SequenceHash sequence_hash() const { return key_.sequence_hash(); }
  [[nodiscard]] std::optional<SequenceHash> parent_sequence_hash() const { return parent_; }
  [[nodiscard]] std::uint32_t position() const { return key_.position(); }
  [[nodiscard]] const BlockKey& key() const { return key_; }

 private:
  Tokens tokens_;
  BlockHash block_hash_;
  BlockKey key_;
  std::optional<SequenceHash> parent_;
};

using TokenBlock = BasicTokenBlock<std::vector<Token>>;
using TokenBlockView = BasicTokenBlock<std::span<const Token>>;

class PartialTokenBlock {
 public:
  // Follows `parent`, or begins a sequence. Errors: a block size of 0, a hasher that makes no keys from tokens.
  [[nodiscard]] static Result<PartialTokenBlock> create(std::uint32_t block_size, const KeyHasher& hasher,
                                                        const std::optional<BlockKey>& parent = std::nullopt);

  [[nodiscard]] Status push(Token token) { return push(std::span<const Token>(&token, 1)); }
  // Adds all of them, or none if they do not fit.
  [[nodiscard]] Status push(std::span<const Token> tokens);
  // Removes the last token; std::nullopt if the block is empty.
  [[nodiscard]] std::optional<Token> pop();
  // Returns the full block, and continues with the empty block after it.
  [[nodiscard]] Result<TokenBlock> commit();

  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }
  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] std::size_t remaining() const { return block_size_ - tokens_.size(); }
  [[nodiscard]] std::uint32_t position() const { return parent_ ? parent_->position() + 1 : 0; }

 private:
  PartialTokenBlock(std::uint32_t block_size, const KeyHasher& hasher, const std::optional<BlockKey>& parent)
      : block_size_(block_size), hasher_(hasher), parent_(parent) {}

  std::vector<Token> tokens_;
  std::uint32_t block_size_;
  KeyHasher hasher_;
  std::optional<BlockKey> parent_;
};

}  // namespace cairn
