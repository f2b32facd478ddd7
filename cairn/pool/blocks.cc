#include "cairn/pool/blocks.h"

#include <algorithm>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/pool/slot_table.h"

namespace cairn {

namespace {

bool holds_something(const internal::Run& run) { return run.storage() != nullptr; }

// What lies behind the end of a run is another run's.
BlockKey key_of(const internal::Run& run, std::uint32_t i) {
  CAIRN_CHECK(i < run.size(), "key(i) is asked of a block that the run has");
  return run.table()->key(run.block_ids()[i]);
}

Error foreign_blocks() {
  return Error{ErrorCode::kInvalidArgument, "the blocks are of another pool; join runs of one pool only"};
}

// Runs of one pool are joined; the blocks of another pool go back to the caller.
template <typename Blocks>
Result<void, Rejected<Blocks>> join(internal::Run& run, internal::Run& other) {
  if (!holds_something(other)) {
    return {};
  }
  if (!holds_something(run)) {
    run = std::move(other);
    return {};
  }
  if (run.table() != other.table()) {
    return Unexpected(Rejected<Blocks>{foreign_blocks(), Blocks(std::move(other))});
  }
  run.table()->append(run, other);
  return {};
}

// Names made of blocks of another size would never be found again.
Status check_block_size(const internal::Run& run, std::size_t tokens) {
  if (run.table() != nullptr && run.table()->options().block_size != tokens) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a block of ", tokens, " tokens for a pool of blocks of ", run.table()->options().block_size,
                        "; cut the sequence into those"));
  }
  return {};
}

}  // namespace

QuarantinedBlocks::~QuarantinedBlocks() {
  if (holds_something(run_)) {
    run_.table()->abandon_quarantined(run_);
  }
}

void QuarantinedBlocks::release_proven_finished() && {
  if (holds_something(run_)) {
    run_.table()->release_quarantined(run_);
  }
}

MutableBlocks::~MutableBlocks() {
  if (holds_something(run_)) {
    run_.table()->release_private(run_);
  }
}

Result<CompleteBlocks, Rejected<MutableBlocks>> MutableBlocks::complete(const BlockNames& names) && {
  if (run_.table() != nullptr) {
    if (const Status status = run_.table()->complete(run_, names); !status) {
      return Unexpected(Rejected<MutableBlocks>{status.error(), std::move(*this)});
    }
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
  if (run_.table() != nullptr) {
    if (const Status status = run_.table()->complete(run_, facts); !status) {
      return Unexpected(Rejected<MutableBlocks>{status.error(), std::move(*this)});
    }
  }
  return CompleteBlocks(std::move(run_));
}

MutableBlocks MutableBlocks::take_front(std::uint32_t count) {
  if (!holds_something(run_) || count == 0) {
    return MutableBlocks(internal::Run(run_.table(), nullptr, 0, 0));
  }
  return MutableBlocks(run_.table()->split_front(run_, std::min(count, run_.size())));
}

Result<void, Rejected<MutableBlocks>> MutableBlocks::append(MutableBlocks other) {
  return join<MutableBlocks>(run_, other.run_);
}

QuarantinedBlocks MutableBlocks::quarantine() && {
  if (holds_something(run_)) {
    run_.table()->quarantine(run_);
  }
  return QuarantinedBlocks(std::move(run_));
}

bool MutableBlocks::is_current() const { return !holds_something(run_) || run_.table()->is_current(run_); }

CompleteBlocks::~CompleteBlocks() {
  if (holds_something(run_)) {
    run_.table()->release_private(run_);
  }
}

BlockKey CompleteBlocks::key(std::uint32_t i) const { return key_of(run_, i); }

Result<ImmutableBlocks, Rejected<CompleteBlocks>> CompleteBlocks::register_blocks(std::span<const Token> tokens) && {
  if (run_.table() == nullptr) {
    return ImmutableBlocks();
  }
  return std::move(*this).register_blocks(run_.table()->options().retention, tokens);
}

Result<ImmutableBlocks, Rejected<CompleteBlocks>> CompleteBlocks::register_blocks(const Retention& retention,
                                                                                  std::span<const Token> tokens) && {
  if (run_.table() != nullptr) {
    if (const Status status = run_.table()->register_run(run_, retention, tokens); !status) {
      return Unexpected(Rejected<CompleteBlocks>{status.error(), std::move(*this)});
    }
  }
  return ImmutableBlocks(std::move(run_));
}

MutableBlocks CompleteBlocks::reset() && { return MutableBlocks(std::move(run_)); }

Result<void, Rejected<CompleteBlocks>> CompleteBlocks::append(CompleteBlocks other) {
  return join<CompleteBlocks>(run_, other.run_);
}

ImmutableBlocks& ImmutableBlocks::operator=(ImmutableBlocks&& other) noexcept {
  if (this != &other) {
    if (holds_something(run_)) {
      run_.table()->release(run_);
    }
    run_ = std::move(other.run_);
  }
  return *this;
}

ImmutableBlocks::~ImmutableBlocks() {
  if (holds_something(run_)) {
    run_.table()->release(run_);
  }
}

BlockKey ImmutableBlocks::key(std::uint32_t i) const { return key_of(run_, i); }

std::vector<BlockFacts> ImmutableBlocks::facts() const {
  return holds_something(run_) ? run_.table()->facts(run_) : std::vector<BlockFacts>();
}

std::optional<CacheLevel> ImmutableBlocks::tier() const {
  return holds_something(run_) ? std::optional(run_.table()->options().tier) : std::nullopt;
}

ImmutableBlocks ImmutableBlocks::share(std::uint32_t count) const {
  if (!holds_something(run_) || count == 0) {
    return {};
  }
  return ImmutableBlocks(run_.table()->share(run_, std::min(count, run_.size())));
}

void ImmutableBlocks::release_tail(std::uint32_t count) {
  if (count < run_.size()) {
    run_.table()->release_tail(run_, count);
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
  return {run_.table(), std::move(keys)};
}

PinnedBlocks ImmutableBlocks::pin() const {
  if (!holds_something(run_)) {
    return PinnedBlocks(internal::Run());
  }
  return PinnedBlocks(run_.table()->share_pinned(run_));
}

void ImmutableBlocks::reset_on_release(bool reset) {
  if (holds_something(run_)) {
    run_.table()->set_reset_on_release(run_, reset);
  }
}

Status ImmutableBlocks::set_retention(const Retention& retention) {
  return holds_something(run_) ? run_.table()->set_retention(run_, retention) : Status();
}

bool ImmutableBlocks::is_current() const { return !holds_something(run_) || run_.table()->is_current(run_); }

void ImmutableBlocks::release_as_victims() && {
  if (holds_something(run_)) {
    run_.table()->release_as_victims(run_);
  }
}

WeakBlocks::WeakBlocks(SlotTable* table, std::vector<BlockKey> keys) : table_(table), keys_(std::move(keys)) {
  if (table_ != nullptr) {
    table_->weak_made();
  }
}

WeakBlocks::WeakBlocks(const WeakBlocks& other) : WeakBlocks(other.table_, other.keys_) {}

WeakBlocks::WeakBlocks(WeakBlocks&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), keys_(std::exchange(other.keys_, {})) {}

WeakBlocks& WeakBlocks::operator=(WeakBlocks other) noexcept {
  std::swap(table_, other.table_);
  std::swap(keys_, other.keys_);
  return *this;
}

WeakBlocks::~WeakBlocks() {
  if (table_ != nullptr) {
    table_->weak_gone();
  }
}

std::optional<ImmutableBlocks> WeakBlocks::upgrade() const {
  if (keys_.empty()) {
    return ImmutableBlocks();
  }
  std::optional<internal::Run> run = table_->match_all(keys_);
  if (!run) {
    return std::nullopt;
  }
  return ImmutableBlocks(*std::move(run));
}

PinnedBlocks::~PinnedBlocks() {
  if (holds_something(run_)) {
    run_.table()->release_pinned(run_);
  }
}

BlockKey PinnedBlocks::key(std::uint32_t i) const { return key_of(run_, i); }

bool PinnedBlocks::is_current() const { return !holds_something(run_) || run_.table()->is_current(run_); }

std::vector<BlockFacts> PinnedBlocks::facts() const {
  return holds_something(run_) ? run_.table()->facts(run_) : std::vector<BlockFacts>();
}

BorrowedBlocks::~BorrowedBlocks() {
  if (holds_something(run_)) {
    run_.table()->give_back(run_);
  }
}

bool BorrowedBlocks::is_current() const { return !holds_something(run_) || run_.table()->is_current(run_); }

std::vector<BlockFacts> BorrowedBlocks::facts() const {
  return holds_something(run_) ? run_.table()->facts(run_) : std::vector<BlockFacts>();
}

}  // namespace cairn
