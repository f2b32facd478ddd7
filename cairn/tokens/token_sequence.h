// TokenBlockSequence: the tokens of a request, divided into blocks, with the keys of the full blocks. The keys depend only
// on the tokens, not on how they were added and removed. The tokens after the last full block are the tail.
//
// Thread safety: one thread at a time; const calls may run at the same time as each other.
// Ownership: owns everything. Spans and views of it are valid until it changes.
// Errors: a block size of 0, a hasher that makes no keys from tokens, a length beyond the end, runs that overlap or are
// outside of the tokens that they come with, more blocks than keys have positions. A call that fails has no effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

// A full block of tokens with its hashes and key.
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
// The same over the tokens of a sequence; valid until the sequence changes.
using TokenBlockView = BasicTokenBlock<std::span<const Token>>;

// A block that is being filled; commit() turns it into a TokenBlock and continues with the empty block after it.
//
// Errors: too many tokens, a commit before the block is full, a position that a key cannot hold. A call that fails has no
// effect.
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

// Blocks begin to end - 1 of a sequence.
struct BlockRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] constexpr std::size_t size() const { return end - begin; }
  [[nodiscard]] constexpr bool empty() const { return begin == end; }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

class TokenBlockSequence {
 public:
  struct Split;

  // `runs` may be in any order; their offsets are from the start of the sequence, here and in extend().
  // `hasher` is that of the manager (KvBlockManager::hasher()) with the salt of the request. Keys of the default hasher
  // are of no use to another process, or to this one after a restart.
  [[nodiscard]] static Result<TokenBlockSequence> create(std::span<const Token> tokens, std::uint32_t block_size,
                                                         const KeyHasher& hasher = KeyHasher::of_process(),
                                                         std::span<const MmRun> runs = {});

  // The same under a scheme whose keys the engine gives (vllm, sglang, router): full blocks have no keys until adopt().
  [[nodiscard]] static Result<TokenBlockSequence> create_adopting(std::span<const Token> tokens,
                                                                  std::uint32_t block_size, const KeyHasher& hasher);
  // Names the next full blocks. `hashes` has one for each key: what the engine's own events call the block
  // (engine_event_hash()); if it is empty, the sequence hashes of the keys stand for them. Fails if there are fewer full
  // blocks, or if the sequence makes its keys from its tokens.
  [[nodiscard]] Status adopt(std::span<const BlockKey> keys, std::span<const BlockHash> hashes = {});

  // Returns the index of the block that the token completed, if it completed one.
  [[nodiscard]] Result<std::optional<std::size_t>> append(Token token);
  // Returns the blocks that the tokens completed. `runs` are within these tokens; for an item that is added in parts set
  // MmRun::item_offset. `tokens` must not be a part of this sequence.
  [[nodiscard]] Result<BlockRange> extend(std::span<const Token> tokens, std::span<const MmRun> runs = {});

  // Keeps the first `length` tokens; a run that goes beyond is shortened.
  [[nodiscard]] Status truncate(std::size_t length);
  // Removes the last `count` tokens.
  [[nodiscard]] Status unwind(std::size_t count);
  // Removes the last token; std::nullopt if there is none.
  [[nodiscard]] std::optional<Token> pop();
  // Removes all tokens; keeps the block size and the hasher.
  void reset();

  // Splits after `length` tokens; prefix.extend(rest, rest_runs) gives the whole sequence again.
  [[nodiscard]] Result<Split> split_at(std::size_t length) const;

  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }
  [[nodiscard]] const KeyHasher& hasher() const { return hasher_; }
  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }
  // Tokens begin to end - 1.
  [[nodiscard]] Result<std::span<const Token>> tokens_at(std::size_t begin, std::size_t end) const;
  [[nodiscard]] std::span<const MmRun> mm_runs() const { return runs_; }

  [[nodiscard]] std::size_t block_count() const { return keys_.size(); }
  // Requires: index < block_count().
  [[nodiscard]] TokenBlockView block(std::size_t index) const;
  // All full blocks, as views.
  [[nodiscard]] auto blocks() const {
    return std::views::iota(std::size_t{0}, block_count()) |
           std::views::transform([this](std::size_t index) { return block(index); });
  }
  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  [[nodiscard]] std::span<const BlockHash> block_hashes() const { return block_hashes_; }

  // The tokens after the last full block, and how many more fill a block.
  [[nodiscard]] std::span<const Token> tail() const { return tokens().subspan(block_count() * block_size_); }
  [[nodiscard]] std::size_t tail_remaining() const { return block_size_ - tail().size(); }

 private:
  TokenBlockSequence(std::uint32_t block_size, const KeyHasher& hasher) : block_size_(block_size), hasher_(hasher) {}

  [[nodiscard]] Status check_length(std::size_t length) const;
  // Computes the keys of the full blocks that have none yet.
  BlockRange name_new_blocks();

  std::uint32_t block_size_;
  bool adopts_ = false;  // keys are given
  KeyHasher hasher_;
  std::vector<Token> tokens_;
  std::vector<MmRun> runs_;  // sorted and checked
  std::vector<BlockKey> keys_;
  std::vector<BlockHash> block_hashes_;
};

struct TokenBlockSequence::Split {
  TokenBlockSequence prefix;
  std::vector<Token> rest;
  std::vector<MmRun> rest_runs;
};

}  // namespace cairn
