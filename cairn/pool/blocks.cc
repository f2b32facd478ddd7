#include "cairn/pool/blocks.h"

#include <algorithm>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/pool/pool_state.h"

namespace cairn {

namespace {

Error foreign_blocks() {
  return Error{ErrorCode::kInvalidArgument, "the blocks are of another pool; join runs of one pool only"};
}

// Runs of one pool are joined; the blocks of another pool go back to the caller.
template <typename Blocks>
Result<void, Rejected<Blocks>> join(internal::Run& run, internal::Run& other) {
  if (!other.is_open()) {
    return {};
  }
  if (!run.is_open()) {
    run = std::move(other);
    return {};
  }
  if (run.pool() != other.pool()) {
    return Unexpected(Rejected<Blocks>{foreign_blocks(), Blocks(std::move(other))});
  }
  run.append(other);
  return {};
}

// Names made of blocks of another size would never be found again.
Status check_block_size(const internal::Run& run, std::size_t tokens) {
  if (run.pool() != nullptr && run.pool()->options.block_size != tokens) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a block of ", tokens, " tokens for a pool of blocks of ",
                                                     run.pool()->options.block_size, "; cut the sequence into those"));
  }
  return {};
}

}  // namespace

QuarantinedBlocks::~QuarantinedBlocks() {
  if (run_.is_open()) {
    run_.abandon_quarantined();
  }
}

void QuarantinedBlocks::release_proven_finished() && {
  if (run_.is_open()) {
    run_.release_quarantined();
  }
}

MutableBlocks::~MutableBlocks() {
  if (run_.is_open()) {
    run_.release_private();
  }
}

Result<CompleteBlocks, Rejected<MutableBlocks>> MutableBlocks::complete(const BlockNames& names) && {
  if (Status status = run_.complete(names); !status) {
    return Unexpected(Rejected<MutableBlocks>{std::move(status).error(), std::move(*this)});
  }
  return CompleteBlocks(std::move(run_));
}

Result<CompleteBlocks, Rejected<MutableBlocks>> MutableBlocks::complete(const TokenBlockSequence& sequence,
                                                                        BlockRange blocks) && {
  const Status fits = check_block_size(run_, sequence.block_size());
  if (!fits) {
    return Unexpected(Rejected<MutableBlocks>{fits.error(), std::move(*this)});
  }
  if (blocks.begin > blocks.end || blocks.end > sequence.block_count()) {
    return Unexpected(Rejected<MutableBlocks>{
        Error{ErrorCode::kOutOfRange, str_cat("blocks ", blocks.begin, " to ", blocks.end, " of a sequence that has ",
                                              sequence.block_count(), " full ones; name blocks that are full")},
        std::move(*this)});
  }
  BlockNames names{.keys = sequence.keys().subspan(blocks.begin, blocks.size()),
                   .tokens_hashes = sequence.block_hashes().subspan(blocks.begin, blocks.size())};
  if (blocks.begin > 0) {
    names.parent = sequence.keys()[blocks.begin - 1].sequence_hash();
  }
  return std::move(*this).complete(names);
}

Result<CompleteBlocks, Rejected<MutableBlocks>> MutableBlocks::complete(const TokenBlock& block) && {
  const Status fits = check_block_size(run_, block.tokens().size());
  if (!fits) {
    return Unexpected(Rejected<MutableBlocks>{fits.error(), std::move(*this)});
  }
  const BlockKey key = block.key();
  const BlockHash tokens_hash = block.block_hash();
  return std::move(*this).complete(
      {.keys = {&key, 1}, .tokens_hashes = {&tokens_hash, 1}, .parent = block.parent_sequence_hash()});
}

Result<CompleteBlocks, Rejected<MutableBlocks>> MutableBlocks::complete_as(std::span<const BlockFacts> facts) && {
  if (Status status = run_.complete(facts); !status) {
    return Unexpected(Rejected<MutableBlocks>{std::move(status).error(), std::move(*this)});
  }
  return CompleteBlocks(std::move(run_));
}

MutableBlocks MutableBlocks::take_front(std::uint32_t count) {
  if (!run_.is_open() || count == 0) {
    return MutableBlocks(internal::Run(run_.pool(), nullptr, 0, 0));
  }
  return MutableBlocks(run_.split_front(std::min(count, run_.size())));
}

Result<void, Rejected<MutableBlocks>> MutableBlocks::append(MutableBlocks other) {
  return join<MutableBlocks>(run_, other.run_);
}

QuarantinedBlocks MutableBlocks::quarantine() && {
  run_.quarantine();
  return QuarantinedBlocks(std::move(run_));
}

bool MutableBlocks::is_current() const { return run_.is_current(); }

CompleteBlocks::~CompleteBlocks() {
  if (run_.is_open()) {
    run_.release_private();
  }
}

BlockKey CompleteBlocks::key(std::uint32_t i) const { return run_.key(i); }

Result<ImmutableBlocks, Rejected<CompleteBlocks>> CompleteBlocks::register_blocks(std::span<const Token> tokens) && {
  if (run_.pool() == nullptr) {
    return ImmutableBlocks();
  }
  return std::move(*this).register_blocks(run_.pool()->options.retention, tokens);
}

Result<ImmutableBlocks, Rejected<CompleteBlocks>> CompleteBlocks::register_blocks(const Retention& retention,
                                                                                  std::span<const Token> tokens) && {
  if (Status status = run_.register_blocks(retention, tokens); !status) {
    return Unexpected(Rejected<CompleteBlocks>{std::move(status).error(), std::move(*this)});
  }
  return ImmutableBlocks(std::move(run_));
}

MutableBlocks CompleteBlocks::reset() && { return MutableBlocks(std::move(run_)); }

Result<void, Rejected<CompleteBlocks>> CompleteBlocks::append(CompleteBlocks other) {
  return join<CompleteBlocks>(run_, other.run_);
}

ImmutableBlocks& ImmutableBlocks::operator=(ImmutableBlocks&& other) noexcept {
  if (this != &other) {
    if (run_.is_open()) {
      run_.release();
    }
    run_ = std::move(other.run_);
  }
  return *this;
}

ImmutableBlocks::~ImmutableBlocks() {
  if (run_.is_open()) {
    run_.release();
  }
}

BlockKey ImmutableBlocks::key(std::uint32_t i) const { return run_.key(i); }

std::vector<BlockFacts> ImmutableBlocks::facts() const { return run_.facts(); }

std::optional<CacheLevel> ImmutableBlocks::tier() const {
  return run_.is_open() ? std::optional(run_.pool()->options.tier) : std::nullopt;
}

ImmutableBlocks ImmutableBlocks::share(std::uint32_t count) const {
  if (!run_.is_open() || count == 0) {
    return {};
  }
  return ImmutableBlocks(run_.share(std::min(count, run_.size())));
}

void ImmutableBlocks::release_tail(std::uint32_t count) {
  if (count < run_.size()) {
    run_.release_tail(count);
  }
}

void ImmutableBlocks::release(RequestEnding ending) && {
  if (run_.is_open()) {
    run_.release(ending);
  }
}

Result<void, Rejected<ImmutableBlocks>> ImmutableBlocks::append(ImmutableBlocks other) {
  return join<ImmutableBlocks>(run_, other.run_);
}

WeakBlocks ImmutableBlocks::downgrade() const {
  std::vector<BlockKey> keys;
  keys.reserve(run_.size());
  for (std::uint32_t i = 0; i < run_.size(); ++i) {
    keys.push_back(key(i));
  }
  return {run_.pool(), std::move(keys)};
}

PinnedBlocks ImmutableBlocks::pin() const {
  if (!run_.is_open()) {
    return PinnedBlocks(internal::Run());
  }
  return PinnedBlocks(run_.pin());
}

void ImmutableBlocks::reset_on_release(bool reset) { run_.set_reset_on_release(reset); }

Status ImmutableBlocks::set_retention(const Retention& retention) { return run_.set_retention(retention); }

bool ImmutableBlocks::is_current() const { return run_.is_current(); }

void ImmutableBlocks::release_as_victims() && {
  if (run_.is_open()) {
    run_.release_as_victims();
  }
}

WeakBlocks::WeakBlocks(internal::PoolState* pool, std::vector<BlockKey> keys) : pool_(pool), keys_(std::move(keys)) {
  if (pool_ != nullptr) {
    pool_->weak_handles.fetch_add(1, std::memory_order_relaxed);
  }
}

WeakBlocks::WeakBlocks(const WeakBlocks& other) : WeakBlocks(other.pool_, other.keys_) {}

WeakBlocks::WeakBlocks(WeakBlocks&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), keys_(std::exchange(other.keys_, {})) {}

WeakBlocks& WeakBlocks::operator=(WeakBlocks other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(keys_, other.keys_);
  return *this;
}

WeakBlocks::~WeakBlocks() {
  if (pool_ != nullptr) {
    pool_->weak_handles.fetch_sub(1, std::memory_order_relaxed);
  }
}

std::optional<ImmutableBlocks> WeakBlocks::upgrade() const {
  if (keys_.empty()) {
    return ImmutableBlocks();
  }
  internal::PoolState& pool = *pool_;
  KeyIndex::Lookup lookup(pool.index, keys_);
  const MutexLock lock(pool.mutex);
  pool.refresh();
  internal::Run run = pool.new_run(static_cast<std::uint32_t>(keys_.size()));
  lookup.for_each([&](std::size_t /*i*/, BlockId block_id) {
    if (block_id != kNoBlock) {
      run.push_back(block_id);
    }
    return block_id != kNoBlock;
  });
  pool.stats.lookups += keys_.size();
  if (run.size() < keys_.size()) {
    pool.end_run(run);
    return std::nullopt;
  }
  internal::PoolState::Matched matched = pool.new_match(run.size());
  for (const BlockId block_id : run.block_ids()) {
    matched.add(block_id, pool.blocks.add_reference(block_id));
  }
  pool.inactive.match(matched.inactive(), matched.in_use());
  pool.stats.hits += keys_.size();
  pool.notifier.tell_matched(keys_);
  return ImmutableBlocks(std::move(run));
}

PinnedBlocks::~PinnedBlocks() {
  if (run_.is_open()) {
    run_.release_pinned();
  }
}

BlockKey PinnedBlocks::key(std::uint32_t i) const { return run_.key(i); }

bool PinnedBlocks::is_current() const { return run_.is_current(); }

std::vector<BlockFacts> PinnedBlocks::facts() const { return run_.facts(); }

BorrowedBlocks::~BorrowedBlocks() {
  if (run_.is_open()) {
    run_.return_borrowed();
  }
}

bool BorrowedBlocks::is_current() const { return run_.is_current(); }

std::vector<BlockFacts> BorrowedBlocks::facts() const { return run_.facts(); }

}  // namespace cairn
