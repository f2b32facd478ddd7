// ActiveSequence: a request as an engine sees it: a prompt that is allocated in pieces, then tokens one by one. It holds
// no blocks itself; it says what a KvManager is to do (move_block.h), and remembers how much of that was granted.
//
// Does:     a full block is named one token late, when the first token of the next one comes. What it was named stays:
//           after a preemption the sequence asks for the same blocks again. Without prefix caching the names are random,
//           drawn once. Tokens of named blocks are kept only where they are to go into events.
// Owner:    owns what its moves look at: a move is good until the sequence changes. Its identity source outlives it.
// Threads:  one.
// Costs:    push() of a token that begins no block is a few instructions.
// Fails:    create(): a block size below 2, more blocks than keys have positions. push(), generate(): the same;
//           generate() also when the last token has been generated. pop(): no generated token to take back. Nothing
//           changes then.
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

// What a new token asks for; to be processed in this order.
struct TokenMoves {
  std::optional<Promote> promote{};
  std::optional<Use> use{};
  std::optional<Deref> release{};  // after the last token: everything

  [[nodiscard]] bool empty() const { return !promote && !use && !release; }
};

class ActiveSequence {
 public:
  [[nodiscard]] static Result<ActiveSequence> create(std::span<const Token> prompt, const SequenceOptions& options,
                                                     IdentitySource& identities);
  // The same for a prompt that was named at this block size. Fails where moves are to carry tokens: it has none.
  [[nodiscard]] static Result<ActiveSequence> create_named(Prompt prompt, const SequenceOptions& options,
                                                           IdentitySource& identities);

  // The blocks that the first `cumulative_tokens` tokens take beyond those already committed; none where that is none.
  [[nodiscard]] std::optional<Use> prepare_allocation(std::size_t cumulative_tokens) const;
  // The first `cumulative_tokens` tokens have their blocks.
  void commit_allocation(std::size_t cumulative_tokens) { num_allocated_tokens_ = cumulative_tokens; }
  // Both at once, for a caller who knows that it will be granted.
  std::optional<Use> allocate_blocks_for_chunk(std::size_t cumulative_tokens);
  std::optional<Use> take_creation_signal() { return allocate_blocks_for_chunk(size()); }

  // Appends a generated token.
  [[nodiscard]] Result<TokenMoves> push(Token token);
  // Appends a random one; after the last, lets go of all blocks.
  [[nodiscard]] Result<TokenMoves> generate();
  // How many of the next generated tokens ask for nothing: none of them begins a block or is the last.
  [[nodiscard]] std::uint64_t quiet_tokens() const;
  // Generates that many at once, which is the same and cheap. Requires: count <= quiet_tokens().
  void generate_quietly(std::uint64_t count);
  // Takes back a token just pushed whose Use was not granted. A name that its push gave to a block stays.
  [[nodiscard]] Status pop();

  // Lets go of the blocks that are committed, leaf first; nothing to process where there are none.
  [[nodiscard]] Deref free_signal() const;
  // The same for a preemption: the sequence has no blocks then, and keeps its tokens and names.
  [[nodiscard]] Deref reset_with_signal();

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::uint32_t block_size() const { return options_.block_size; }
  [[nodiscard]] std::size_t num_input_tokens() const { return num_input_tokens_; }
  [[nodiscard]] std::size_t num_allocated_tokens() const { return num_allocated_tokens_; }
  // Blocks that are committed.
  [[nodiscard]] std::size_t num_allocated_blocks() const { return blocks_covering(num_allocated_tokens_); }
  [[nodiscard]] std::uint64_t generated_tokens() const { return generated_tokens_; }
  [[nodiscard]] std::uint64_t max_output_tokens() const { return options_.max_output_tokens; }
  [[nodiscard]] bool enable_prefix_caching() const { return options_.enable_prefix_caching; }
  // Full blocks, and the one being filled if there is one.
  [[nodiscard]] std::span<const UniqueBlock> unique_blocks() const { return unique_blocks_; }
  // Of the full blocks.
  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  [[nodiscard]] std::span<const BlockHash> block_hashes() const { return block_hashes_; }

 private:
  ActiveSequence(const SequenceOptions& options, IdentitySource& identities)
      : options_(options), identities_(&identities) {}

  [[nodiscard]] std::size_t blocks_covering(std::size_t tokens) const;
  // Makes the unique blocks of a prompt whose full blocks have their names.
  void begin(std::size_t prompt_tokens);
  void draw_names(std::size_t first_block);
  // Names the full blocks among tokens_, which follow those that have names. Makes no unique blocks of them.
  [[nodiscard]] Status name_blocks(std::span<const Token> tokens);
  [[nodiscard]] Result<TokenMoves> begin_block(Token token);
  [[nodiscard]] Promote promote_last();
  [[nodiscard]] std::optional<std::span<const Token>> tokens_of(std::size_t first_block, std::size_t count) const;

  SequenceOptions options_;
  IdentitySource* identities_;
  std::vector<UniqueBlock> unique_blocks_;
  std::vector<BlockKey> keys_;
  std::vector<BlockHash> block_hashes_;
  std::vector<Token> tokens_;  // all of them, or only those after the last named block
  std::size_t unnamed_ = 0;    // tokens after the last named block: up to a whole block
  std::size_t size_ = 0;
  std::size_t num_input_tokens_ = 0;
  std::size_t num_allocated_tokens_ = 0;
  std::uint64_t generated_tokens_ = 0;
};

}  // namespace cairn::sim
