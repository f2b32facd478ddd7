// TokenBlockSequence: the tokens of a request, cut into blocks as they come, with the names of the full ones.
//
// Does:     keeps tokens, keys and block hashes in one array each. However the tokens came (at once, one by one, taken
//           back and given again), the names are the same. Tokens after the last full block are the tail and have none.
// Owner:    owns everything; spans and views of it are good until it changes.
// Threads:  one thread changes it; any number read it while nobody does.
// Fails:    a block size of 0, a hasher that makes no keys from tokens, a length beyond the end, runs that are not inside
//           the tokens they come with or overlap, more blocks than keys have positions: nothing changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/mm_run.h"
#include "cairn/tokens/token_block.h"

namespace cairn {

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

  // Runs may come in any order; their offsets count from the start of the sequence, here and in extend().
  // `hasher`: the manager's, with the salt of the request (KvBlockManager::hasher()). Keys of the hasher of the process
  // mean nothing to another process, nor to this one after a restart.
  [[nodiscard]] static Result<TokenBlockSequence> create(std::span<const Token> tokens, std::uint32_t block_size,
                                                         const KeyHasher& hasher = KeyHasher::of_process(),
                                                         std::span<const MmRun> runs = {});

  // The index of the block that the token completed, if it did.
  [[nodiscard]] Result<std::optional<std::size_t>> append(Token token);
  // The blocks that the tokens completed. `runs` stand inside them; an item that comes in pieces says so in
  // MmRun::item_offset. The tokens must not be this sequence's own.
  [[nodiscard]] Result<BlockRange> extend(std::span<const Token> tokens, std::span<const MmRun> runs = {});

  // Keeps the first `length` tokens; a run that reaches beyond is cut there.
  [[nodiscard]] Status truncate(std::size_t length);
  // Takes back the last `count` tokens.
  [[nodiscard]] Status unwind(std::size_t count);
  // Takes back the last token, unless there is none.
  [[nodiscard]] std::optional<Token> pop();
  // Takes back everything but block size and hasher.
  void reset();

  // The first `length` tokens as a sequence, and what comes after: prefix.extend(rest, rest_runs) is the whole again.
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

  // The tokens after the last full block, and how many more would fill one.
  [[nodiscard]] std::span<const Token> tail() const { return tokens().subspan(block_count() * block_size_); }
  [[nodiscard]] std::size_t tail_remaining() const { return block_size_ - tail().size(); }

 private:
  TokenBlockSequence(std::uint32_t block_size, const KeyHasher& hasher) : block_size_(block_size), hasher_(hasher) {}

  [[nodiscard]] Status check_length(std::size_t length) const;
  // Names the blocks that tokens_ holds and keys_ does not.
  BlockRange name_new_blocks();

  std::uint32_t block_size_;
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
