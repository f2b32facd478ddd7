// ActiveSequence: one request as an engine sees it: a prompt whose blocks are allocated in chunks, then tokens that are
// generated one by one. It holds no blocks. It says which moves (move_block.h) a KvManager has to make, and remembers
// how many tokens have their blocks.
//
// A full block gets its key one token late, when the first token of the next block comes. The key stays: after a
// preemption the sequence asks for the same blocks again. Without prefix caching the keys are random and drawn once.
// The tokens of blocks with a key are kept only if events need them.
//
// Thread safety: not thread-safe.
// Ownership:  the sequence owns the memory that its moves refer to; a move is valid until the sequence changes. The
//             identity source must outlive the sequence.
// Errors:     create() fails if the block size is below 2 or there are more blocks than keys have positions. push() and
//             generate() fail if there is no position for another block; generate() also after the last token. pop()
//             fails if there is no generated token. A call that fails has no effect.
// Complexity: push() of a token that begins no block takes a few instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/sim/identity_source.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/prompt.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

inline constexpr std::uint64_t kUnboundedOutput = std::numeric_limits<std::uint64_t>::max();

struct SequenceOptions {
  std::uint32_t block_size = 64;
  std::uint64_t max_output_tokens = kUnboundedOutput;
  bool enable_prefix_caching = true;
  bool emit_token_ids = false;  // whether moves carry the tokens of full blocks
};

// The moves that a new token needs, to be processed in this order.
struct TokenMoves {
  std::optional<Promote> promote{};
  std::optional<Use> use{};
  std::optional<Deref> release{};  // after the last token: all blocks

  [[nodiscard]] bool empty() const { return !promote && !use && !release; }
};

class ActiveSequence {
 public:
  [[nodiscard]] static Result<ActiveSequence> create(std::span<const Token> prompt, const SequenceOptions& options,
                                                     IdentitySource& identities);
  // The same for a prompt whose keys were made at this block size. Fails with `emit_token_ids`: such a prompt has no
  // tokens.
  [[nodiscard]] static Result<ActiveSequence> create_hashed(Prompt prompt, const SequenceOptions& options,
                                                            IdentitySource& identities);

  // The blocks that the first `cumulative_tokens` tokens need beyond the committed ones; std::nullopt if they need
  // none.
  [[nodiscard]] std::optional<Use> prepare_allocation(std::size_t cumulative_tokens) const;
  // Records that the first `cumulative_tokens` tokens have their blocks.
  void commit_allocation(std::size_t cumulative_tokens) { num_allocated_tokens_ = cumulative_tokens; }
  // Both in one step, for a caller that knows that the blocks will be granted.
  std::optional<Use> allocate_blocks_for_chunk(std::size_t cumulative_tokens);
  std::optional<Use> take_creation_signal() { return allocate_blocks_for_chunk(size()); }

  // Appends a generated token.
  [[nodiscard]] Result<TokenMoves> push(Token token);
  // Appends a random token. The moves of the last one release all blocks.
  [[nodiscard]] Result<TokenMoves> generate();
  // How many of the next generated tokens need no move, because none of them begins a block or is the last one.
  [[nodiscard]] std::uint64_t quiet_tokens() const;
  // The same as `count` calls of generate(), but cheaper. Requires: count <= quiet_tokens().
  void generate_quietly(std::uint64_t count);
  // Takes back the token that was pushed last, because its Use was not granted. A block that got its key by that push
  // keeps it.
  [[nodiscard]] Status pop();

  // Releases the committed blocks, leaf first. The Deref is empty if there are none.
  [[nodiscard]] Deref free_signal() const;
  // The same for a preemption: afterwards the sequence has no committed blocks; it keeps its tokens and keys.
  [[nodiscard]] Deref reset_with_signal();

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint32_t block_size() const { return options_.block_size; }
  [[nodiscard]] std::size_t num_input_tokens() const { return num_input_tokens_; }
  [[nodiscard]] std::size_t num_allocated_tokens() const { return num_allocated_tokens_; }
  // Committed blocks.
  [[nodiscard]] std::size_t num_allocated_blocks() const { return blocks_covering(num_allocated_tokens_); }
  [[nodiscard]] std::uint64_t generated_tokens() const { return generated_tokens_; }
  [[nodiscard]] std::uint64_t max_output_tokens() const { return options_.max_output_tokens; }
  [[nodiscard]] bool enable_prefix_caching() const { return options_.enable_prefix_caching; }
  // The full blocks, then the partial one if there is one.
  [[nodiscard]] std::span<const UniqueBlock> unique_blocks() const { return unique_blocks_; }
  // Of the full blocks.
  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  [[nodiscard]] std::span<const BlockHash> block_hashes() const { return block_hashes_; }

 private:
  ActiveSequence(const SequenceOptions& options, IdentitySource& identities)
      : options_(options), identities_(&identities) {}

  [[nodiscard]] std::size_t blocks_covering(std::size_t tokens) const;
  // Makes the unique blocks of a prompt whose full blocks have their keys.
  void begin(std::size_t prompt_tokens);
  void draw_keys(std::size_t first_block);
  // Makes the keys of the full blocks in `tokens`, which follow the blocks that have keys; makes no unique blocks.
  [[nodiscard]] Status make_keys(std::span<const Token> tokens);
  [[nodiscard]] Result<TokenMoves> begin_block(Token token);
  [[nodiscard]] Promote promote_last();
  [[nodiscard]] std::optional<std::span<const Token>> tokens_of(std::size_t first_block, std::size_t count) const;

  SequenceOptions options_;
  IdentitySource* identities_;
  std::vector<UniqueBlock> unique_blocks_;
  std::vector<BlockKey> keys_;
  std::vector<BlockHash> block_hashes_;
  std::vector<Token> tokens_;  // all tokens, or only those after the last block with a key
  std::size_t unkeyed_ = 0;    // tokens after the last block with a key: up to a whole block
  std::size_t size_ = 0;
  std::size_t num_input_tokens_ = 0;
  std::size_t num_allocated_tokens_ = 0;
  std::uint64_t generated_tokens_ = 0;
};

}  // namespace cairn::sim
