#include "cairn/tokens/token_sequence.h"

#include <algorithm>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/tokens/block_run.h"

namespace cairn {
namespace {

// Sorts the runs and checks that they are within tokens begin to end - 1.
Result<std::vector<MmRun>> sorted_runs(std::span<const MmRun> runs, std::uint64_t begin, std::uint64_t end) {
  std::vector<MmRun> sorted(runs.begin(), runs.end());
  std::ranges::sort(sorted, {}, &MmRun::offset);
  CAIRN_TRY(check_mm_runs(sorted));
  if (!sorted.empty() && (sorted.front().offset < begin || sorted.back().end() > end)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("multimodal runs from token ", sorted.front().offset, " to ", sorted.back().end(),
                        " come with tokens ", begin, " to ", end, "; give runs inside the tokens they come with"));
  }
  return sorted;
}

// The first run that ends after `place`.
auto run_at(std::vector<MmRun>& runs, std::uint64_t place) {
  return std::ranges::partition_point(runs, [&](const MmRun& run) { return run.end() <= place; });
}

// Cuts the runs at `place`; returns the part after it.
std::vector<MmRun> cut_runs(std::vector<MmRun>& runs, std::uint64_t place) {
  auto first = run_at(runs, place);
  std::vector<MmRun> after(first, runs.end());
  if (!after.empty() && after.front().offset < place) {
    const auto kept = static_cast<std::uint32_t>(place - after.front().offset);
    after.front().offset += kept;
    after.front().length -= kept;
    after.front().item_offset += kept;
    first->length = kept;
    ++first;
  }
  runs.erase(first, runs.end());
  return after;
}

}  // namespace

Result<TokenBlockSequence> TokenBlockSequence::create(std::span<const Token> tokens, std::uint32_t block_size,
                                                      const KeyHasher& hasher, std::span<const MmRun> runs) {
  CAIRN_TRY(internal::check_block_size(block_size));
  CAIRN_TRY(hasher.check_hashes_tokens());
  TokenBlockSequence sequence(block_size, hasher);
  CAIRN_TRY(sequence.extend(tokens, runs));
  return sequence;
}

Result<TokenBlockSequence> TokenBlockSequence::create_adopting(std::span<const Token> tokens, std::uint32_t block_size,
                                                               const KeyHasher& hasher) {
  CAIRN_TRY(internal::check_block_size(block_size));
  if (hasher.check_hashes_tokens()) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("keys of scheme ", to_string(hasher.scheme()),
                        " are made from tokens; give no hashes of the engine, or set model.scheme"));
  }
  TokenBlockSequence sequence(block_size, hasher);
  sequence.adopts_ = true;
  CAIRN_TRY(sequence.extend(tokens));
  return sequence;
}

Status TokenBlockSequence::adopt(std::span<const BlockKey> keys, std::span<const BlockHash> hashes) {
  CAIRN_CHECK(hashes.empty() || hashes.size() == keys.size(), "there is a hash for each key, or none");
  const std::size_t unnamed = size() / block_size_ - block_count();
  if (keys.size() > unnamed) {
    return fail(ErrorCode::kOutOfRange, str_cat(keys.size(), " keys for ", unnamed,
                                                " full blocks without one; give one for each full block, once"));
  }
  keys_.reserve(keys_.size() + keys.size());
  block_hashes_.reserve(keys_.capacity());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys_.push_back(keys[i]);
    block_hashes_.push_back(hashes.empty() ? BlockHash{value_of(keys[i].sequence_hash())} : hashes[i]);
  }
  return {};
}

Result<std::optional<std::size_t>> TokenBlockSequence::append(Token token) {
  // Most tokens complete no block.
  if (size() + 1 < (block_count() + 1) * block_size_) {
    tokens_.push_back(token);
    return std::optional<std::size_t>();
  }
  CAIRN_TRY_ASSIGN(const BlockRange completed, extend({&token, 1}));
  return completed.empty() ? std::nullopt : std::optional<std::size_t>(completed.begin);
}

Result<BlockRange> TokenBlockSequence::extend(std::span<const Token> tokens, std::span<const MmRun> runs) {
  CAIRN_TRY(internal::check_positions(0, (size() + tokens.size()) / block_size_));
  if (!runs.empty()) {
    CAIRN_TRY_ASSIGN(const std::vector<MmRun> sorted, sorted_runs(runs, size(), size() + tokens.size()));
    runs_.insert(runs_.end(), sorted.begin(), sorted.end());
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return name_new_blocks();
}

BlockRange TokenBlockSequence::name_new_blocks() {
  const BlockRange added{block_count(), adopts_ ? block_count() : size() / block_size_};
  if (added.empty()) {
    return added;
  }
  const std::size_t offset = added.begin * block_size_;
  const std::optional<BlockKey> parent = keys_.empty() ? std::nullopt : std::optional<BlockKey>(keys_.back());
  keys_.resize(added.end);
  block_hashes_.resize(added.end);
  const Result<std::size_t> hashed = hash_blocks(
      tokens().subspan(offset), block_size_, hasher_, parent, std::span(keys_).subspan(added.begin),
      std::span(block_hashes_).subspan(added.begin), std::span<const MmRun>(run_at(runs_, offset), runs_.end()));
  CAIRN_CHECK(hashed.has_value(), "the tokens of a sequence were checked before they were added");
  return added;
}

Status TokenBlockSequence::check_length(std::size_t length) const {
  if (length > size()) {
    return fail(ErrorCode::kOutOfRange,
                str_cat("token ", length, " is beyond the end of a sequence of ", size(), "; give at most its size"));
  }
  return Status();
}

Status TokenBlockSequence::truncate(std::size_t length) {
  CAIRN_TRY(check_length(length));
  tokens_.resize(length);
  // A key does not depend on later tokens, so the keys of the remaining blocks are still right.
  const std::size_t blocks = std::min(length / block_size_, block_count());
  keys_.resize(blocks);
  block_hashes_.resize(blocks);
  if (!runs_.empty()) {
    static_cast<void>(cut_runs(runs_, length));
  }
  return Status();
}

Status TokenBlockSequence::unwind(std::size_t count) {
  if (count > size()) {
    return fail(ErrorCode::kOutOfRange,
                str_cat("a sequence of ", size(), " tokens cannot remove ", count, "; remove at most its size"));
  }
  return truncate(size() - count);
}

std::optional<Token> TokenBlockSequence::pop() {
  if (empty()) {
    return std::nullopt;
  }
  const Token last = tokens_.back();
  CAIRN_CHECK(unwind(1).has_value(), "a sequence that is not empty has a token to remove");
  return last;
}

void TokenBlockSequence::reset() {
  tokens_.clear();
  runs_.clear();
  keys_.clear();
  block_hashes_.clear();
}

Result<TokenBlockSequence::Split> TokenBlockSequence::split_at(std::size_t length) const {
  CAIRN_TRY(check_length(length));
  const auto at = static_cast<std::ptrdiff_t>(length);
  const auto full = static_cast<std::ptrdiff_t>(std::min(length / block_size_, block_count()));
  Split split{TokenBlockSequence(block_size_, hasher_), {tokens_.begin() + at, tokens_.end()}, {}};
  split.prefix.adopts_ = adopts_;
  split.prefix.tokens_.assign(tokens_.begin(), tokens_.begin() + at);
  split.prefix.keys_.assign(keys_.begin(), keys_.begin() + full);
  split.prefix.block_hashes_.assign(block_hashes_.begin(), block_hashes_.begin() + full);
  split.prefix.runs_ = runs_;
  split.rest_runs = cut_runs(split.prefix.runs_, length);
  return split;
}

Result<std::span<const Token>> TokenBlockSequence::tokens_at(std::size_t begin, std::size_t end) const {
  CAIRN_TRY(check_length(end));
  if (begin > end) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("tokens from ", begin, " to ", end, " are not a range; give the lower index first"));
  }
  return tokens().subspan(begin, end - begin);
}

TokenBlockView TokenBlockSequence::block(std::size_t index) const {
  CAIRN_DCHECK(index < block_count(), "the index is that of a full block");
  return {tokens().subspan(index * block_size_, block_size_), block_hashes_[index], keys_[index],
          index == 0 ? std::nullopt : std::optional<SequenceHash>(keys_[index - 1].sequence_hash())};
}

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
