// A full block of tokens with all its names, and the block that is still being filled.
//
// Does:     TokenBlock owns its tokens; TokenBlockView looks at those of a sequence (token_sequence.h) and is good
//           until that sequence changes. PartialTokenBlock collects tokens until it is full, turns them into a
//           TokenBlock, and goes on as the empty block after it.
// Threads:  plain values.
// Fails:    too many tokens, a commit before the block is full, a position a key cannot hold: nothing changes.
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
  // `parent`: the sequence hash of the block before; none at position 0.
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
  // Follows `parent`, or begins a sequence. Fails: a block size of 0, a hasher that makes no keys from tokens.
  [[nodiscard]] static Result<PartialTokenBlock> create(std::uint32_t block_size, const KeyHasher& hasher,
                                                        const std::optional<BlockKey>& parent = std::nullopt);

  [[nodiscard]] Status push(Token token) { return push(std::span<const Token>(&token, 1)); }
  // All of them or, if they do not fit, none.
  [[nodiscard]] Status push(std::span<const Token> tokens);
  // The last token, unless the block is empty.
  [[nodiscard]] std::optional<Token> pop();
  // The full block; what is left is the empty one after it.
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
