#include "cairn/sim/active_sequence.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn::sim {

namespace {

Status check_block_size(std::uint32_t block_size) {
  if (block_size >= 2) {
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat("block size ", block_size, " is too small; give at least 2 tokens per block"));
}

}  // namespace

Result<ActiveSequence> ActiveSequence::create(std::span<const Token> prompt, const SequenceOptions& options,
                                              IdentitySource& identities) {
  CAIRN_TRY(check_block_size(options.block_size));
  ActiveSequence sequence(options, identities);
  CAIRN_TRY(sequence.make_keys(prompt));
  sequence.begin(prompt.size());
  const std::span<const Token> kept = options.emit_token_ids ? prompt : prompt.last(sequence.unkeyed_);
  sequence.tokens_.assign(kept.begin(), kept.end());
  return sequence;
}

Result<ActiveSequence> ActiveSequence::create_hashed(Prompt prompt, const SequenceOptions& options,
                                                     IdentitySource& identities) {
  CAIRN_TRY(check_block_size(options.block_size));
  if (options.emit_token_ids || prompt.keys.size() != prompt.size / options.block_size) {
    return fail(ErrorCode::kInvalidArgument,
                options.emit_token_ids
                    ? "emit_token_ids: a prompt made of keys has no tokens; give the tokens themselves"
                    : "the keys of the prompt were made at another block size; make them again");
  }
  ActiveSequence sequence(options, identities);
  sequence.keys_ = std::move(prompt.keys);
  sequence.block_hashes_ = std::move(prompt.block_hashes);
  sequence.tokens_ = std::move(prompt.tail);
  if (!options.enable_prefix_caching) {
    sequence.draw_keys(0);
  }
  sequence.begin(prompt.size);
  return sequence;
}

void ActiveSequence::begin(std::size_t prompt_tokens) {
  size_ = num_input_tokens_ = prompt_tokens;
  unkeyed_ = prompt_tokens - keys_.size() * options_.block_size;
  unique_blocks_.reserve(keys_.size() + 1);
  for (const BlockKey& key : keys_) {
    unique_blocks_.push_back(UniqueBlock::full(key.sequence_hash()));
  }
  if (unkeyed_ > 0) {
    unique_blocks_.push_back(UniqueBlock::partial(identities_->next_partial()));
  }
}

void ActiveSequence::draw_keys(std::size_t first_block) {
  for (std::size_t i = first_block; i < keys_.size(); ++i) {
    keys_[i] =
        BlockKey::make_checked(static_cast<std::uint32_t>(i), SequenceHash{identities_->random()}, SequenceHash{0});
  }
}

Status ActiveSequence::make_keys(std::span<const Token> tokens) {
  const std::size_t keyed = keys_.size();
  const std::size_t added = tokens.size() / options_.block_size;
  if (keyed + added > std::size_t{BlockKey::kMaxPosition} + 1) {
    return fail(ErrorCode::kOutOfRange, str_cat("a sequence of ", keyed + added, " blocks is too long; keys have ",
                                                std::size_t{BlockKey::kMaxPosition} + 1, " positions"));
  }
  const std::optional<BlockKey> parent = keyed == 0 ? std::nullopt : std::optional(keys_.back());
  keys_.resize(keyed + added);
  block_hashes_.resize(keyed + added);
  const Result<std::size_t> hashed =
      hash_blocks(tokens, options_.block_size, KeyHasher::dynamo(), parent, std::span(keys_).subspan(keyed),
                  std::span(block_hashes_).subspan(keyed));
  CAIRN_CHECK(hashed.has_value(), "block size and positions were checked");
  if (!options_.enable_prefix_caching) {
    draw_keys(keyed);
  }
  return Status();
}

std::size_t ActiveSequence::blocks_covering(std::size_t tokens) const {
  const std::size_t whole = tokens / options_.block_size;
  return std::min(whole + (tokens % options_.block_size != 0 ? 1 : 0), unique_blocks_.size());
}

std::optional<std::span<const Token>> ActiveSequence::tokens_of(std::size_t first_block, std::size_t count) const {
  if (!options_.emit_token_ids || count == 0) {
    return std::nullopt;
  }
  return std::span(tokens_).subspan(first_block * options_.block_size, count * options_.block_size);
}

std::optional<Use> ActiveSequence::prepare_allocation(std::size_t cumulative_tokens) const {
  const std::size_t begin = num_allocated_blocks();
  const std::size_t end = blocks_covering(cumulative_tokens);
  if (end <= begin) {
    return std::nullopt;
  }
  // Only the last block can be partial.
  const std::size_t full_begin = std::min(begin, keys_.size());
  const std::size_t full = std::min(end, keys_.size()) - full_begin;
  return Use{.blocks = std::span(unique_blocks_).subspan(begin, end - begin),
             .keys = keys().subspan(full_begin, full),
             .tokens_hashes = block_hashes().subspan(full_begin, full),
             .token_ids = tokens_of(full_begin, full),
             .parent = begin == 0 ? std::nullopt : std::optional(unique_blocks_[begin - 1])};
}

std::optional<Use> ActiveSequence::allocate_blocks_for_chunk(std::size_t cumulative_tokens) {
  std::optional<Use> use = prepare_allocation(cumulative_tokens);
  commit_allocation(cumulative_tokens);
  return use;
}

Result<TokenMoves> ActiveSequence::push(Token token) {
  if (unkeyed_ == 0 || unkeyed_ == options_.block_size) {
    return begin_block(token);
  }
  tokens_.push_back(token);
  ++unkeyed_;
  ++size_;
  ++generated_tokens_;
  return TokenMoves{};
}

Result<TokenMoves> ActiveSequence::begin_block(Token token) {
  TokenMoves moves;
  if (unkeyed_ != 0) {
    CAIRN_TRY(make_keys(std::span(tokens_).last(unkeyed_)));
    moves.promote = promote_last();
  }
  tokens_.push_back(token);
  unkeyed_ = 1;
  ++size_;
  ++generated_tokens_;
  unique_blocks_.push_back(UniqueBlock::partial(identities_->next_partial()));
  if (moves.promote) {
    moves.promote->token_ids = tokens_of(keys_.size() - 1, 1);
  }
  moves.use = Use{.blocks = std::span(unique_blocks_).last(1), .keys = {}};
  return moves;
}

Promote ActiveSequence::promote_last() {
  const std::size_t index = keys_.size() - 1;
  const PartialId partial = unique_blocks_[index].id();
  unique_blocks_[index] = UniqueBlock::full(keys_[index].sequence_hash());
  if (!options_.emit_token_ids) {
    tokens_.clear();
  }
  return Promote{.partial = partial,
                 .hash = keys_[index].sequence_hash(),
                 .parent = index == 0 ? std::nullopt : std::optional(unique_blocks_[index - 1].hash()),
                 .tokens_hash = block_hashes_[index],
                 .key = keys_[index]};
}

Result<TokenMoves> ActiveSequence::generate() {
  if (generated_tokens_ >= options_.max_output_tokens) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("all ", options_.max_output_tokens, " tokens have been generated; release the sequence"));
  }
  Result<TokenMoves> moves = push(static_cast<Token>(identities_->random()));
  if (moves && generated_tokens_ == options_.max_output_tokens) {
    moves->release = Deref{.blocks = std::span(unique_blocks_).first(blocks_covering(size_)), .last_first = true};
  }
  return moves;
}

std::uint64_t ActiveSequence::quiet_tokens() const {
  if (unkeyed_ == 0 || generated_tokens_ >= options_.max_output_tokens) {
    return 0;
  }
  return std::min<std::uint64_t>(options_.block_size - unkeyed_, options_.max_output_tokens - generated_tokens_ - 1);
}

void ActiveSequence::generate_quietly(std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    tokens_.push_back(static_cast<Token>(identities_->random()));
  }
  unkeyed_ += count;
  size_ += count;
  generated_tokens_ += count;
}

Status ActiveSequence::pop() {
  if (generated_tokens_ == 0 || unkeyed_ == 0) {
    return fail(ErrorCode::kFailedPrecondition, "pop: there is no generated token; one pop undoes one push");
  }
  tokens_.pop_back();
  --unkeyed_;
  --size_;
  --generated_tokens_;
  if (unkeyed_ == 0) {
    unique_blocks_.pop_back();
  }
  return Status();
}

Deref ActiveSequence::free_signal() const {
  return Deref{.blocks = unique_blocks().first(num_allocated_blocks()), .last_first = true};
}

Deref ActiveSequence::reset_with_signal() {
  const Deref release = free_signal();
  num_allocated_tokens_ = 0;
  return release;
}

}  // namespace cairn::sim
