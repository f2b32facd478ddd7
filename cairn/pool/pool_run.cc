
#include <algorithm>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/pool_state.h"

namespace cairn::internal {

namespace {

// Blocks for which calls of an offloader hold the lock at a time, so that an allocation waits for one step and not for a whole
// run. A wait longer than a lock spins would be a wake-up by the kernel.
constexpr std::size_t kStep = 8;

template <typename Id>
std::span<Id> step_from(std::span<Id> block_ids, std::size_t begin) {
  return block_ids.subspan(begin, std::min(kStep, block_ids.size() - begin));
}

// Another handle to the first `count` blocks of the run.
Run share_locked(PoolState& pool, const Run& run, std::uint32_t count) CAIRN_REQUIRES(pool.mutex) {
  Run shared = pool.new_run(count);
  for (const BlockId block_id : run.block_ids().first(count)) {
    (void)pool.blocks.add_reference(block_id);
    shared.push_back(block_id);
  }
  return shared;
}

Status check_distinct_keys(PoolState& pool, std::span<const BlockId> block_ids) CAIRN_REQUIRES(pool.mutex) {
  const BlockRecords& blocks = pool.blocks;
  bool rising = true;  // as along one sequence, which is the usual case and needs no sorting
  for (std::size_t i = 1; rising && i < block_ids.size(); ++i) {
    rising = blocks.key(block_ids[i - 1]).position() < blocks.key(block_ids[i]).position();
  }
  if (rising) {
    return {};
  }
  std::vector<BlockKey>& keys = pool.sorted_keys;
  keys.clear();
  for (const BlockId block_id : block_ids) {
    keys.push_back(blocks.key(block_id));
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("key ", twice->to_string(), " is in one registration twice; register each block once"));
  }
  return {};
}

// Registers a private block. Returns whether its key is new to the pool. If it is not and the pool rejects duplicates,
// `block_id` becomes the block that was registered before.
bool register_one(PoolState& pool, BlockId& block_id, KeyIndex::Place place, const Retention& retention)
    CAIRN_REQUIRES(pool.mutex) {
  BlockRecords& blocks = pool.blocks;
  CAIRN_DCHECK(blocks.state(block_id) == BlockRecords::State::kPrivate, "only a private block is registered");
  if (!blocks.is_registrable(block_id)) {
    blocks.make_discarded(block_id);
    ++pool.stats.discarded;
    return false;
  }
  const BlockKey& key = blocks.key(block_id);
  const BlockId registered = pool.index.find(key, place);
  if (registered == kNoBlock) {
    blocks.make_registered(block_id);
    pool.inactive.on_registered(block_id, retention);
    if (!blocks.knows_parent(block_id)) {
      blocks.set_unknown_parent(block_id, pool.index.find_parent(key));
    }
    pool.index.insert(block_id, place);
    ++pool.stats.registered;
    return true;
  }
  const std::span<const BlockId> one(&registered, 1);
  if (blocks.add_reference(registered)) {
    pool.inactive.use(one, {});
  } else {
    pool.inactive.use({}, one);
  }
  pool.inactive.raise_retention(registered, retention);
  if (pool.options.duplicates == Duplicates::kReject) {
    blocks.make_free(block_id);
    block_id = registered;
    ++pool.stats.deduplicated;
  } else {
    blocks.make_duplicate(block_id, registered);
    ++pool.stats.duplicated;
  }
  return false;
}

// Drops one reference to each of the blocks, in this order, and makes those ready to be evicted that nobody uses any
// more.
void release_to_ready(PoolState& pool, std::span<const BlockId> block_ids) CAIRN_REQUIRES(pool.mutex) {
  BlockId* const unused = pool.scratch(block_ids.size());
  std::size_t unused_count = 0;
  for (const BlockId block_id : block_ids) {
    if (const BlockId released = pool.release_one(block_id); released != kNoBlock) {
      unused[unused_count++] = released;
    }
  }
  pool.inactive.insert_ready({unused, unused_count});
  pool.notifier.tell_removed();
}

}  // namespace

BlockKey Run::key(std::uint32_t i) const {
  CAIRN_CHECK(i < size_, "key(i) needs a block that the run has");
  return pool_->blocks.key(block_ids_[i]);
}

std::vector<BlockFacts> Run::facts() const {
  std::vector<BlockFacts> facts;
  if (!is_open()) {
    return facts;
  }
  facts.reserve(size_);
  for (std::size_t begin = 0; begin < size_; begin += kStep) {
    const MutexLock lock(pool_->mutex);
    for (const BlockId block_id : step_from(block_ids(), begin)) {
      facts.push_back(pool_->facts(block_id));
    }
  }
  return facts;
}

bool Run::is_current() const {
  if (!is_open()) {
    return true;
  }
  const MutexLock lock(pool_->mutex);
  const BlockRecords& blocks = pool_->blocks;
  return std::ranges::all_of(block_ids(), [&blocks](BlockId block_id) { return blocks.is_current(block_id); });
}

Run Run::split_front(std::uint32_t count) {
  if (count == size_) {
    return std::move(*this);  // which leaves it empty and closed
  }
  const MutexLock lock(pool_->mutex);
  Run front = pool_->new_run(count);
  std::copy_n(block_ids_, count, front.storage());
  front.resize(count);
  std::copy(block_ids_ + count, block_ids_ + size_, block_ids_);
  size_ -= count;
  return front;
}

void Run::append(Run& other) {
  const MutexLock lock(pool_->mutex);
  const std::uint32_t size = size_;
  if (capacity_ < size + other.size()) {
    Run larger = pool_->new_run(size + other.size());
    std::copy_n(block_ids_, size, larger.storage());
    pool_->end_run(*this);
    *this = std::move(larger);
  }
  std::copy_n(other.storage(), other.size(), block_ids_ + size);
  size_ = size + other.size();
  pool_->end_run(other);
}

Status Run::complete(const BlockNames& names) {
  return pool_ == nullptr ? Status() : pool_->blocks.complete(block_ids(), names);
}

Status Run::complete(std::span<const BlockFacts> facts) {
  return pool_ == nullptr ? Status() : pool_->blocks.complete(block_ids(), facts);
}

Status Run::register_blocks(const Retention& retention, std::span<const Token> tokens) {
  if (pool_ == nullptr) {
    return {};
  }
  PoolState& pool = *pool_;
  CAIRN_TRY(pool.check_retention(retention));
  const std::size_t block_size = pool.options.block_size;
  if (!tokens.empty() && tokens.size() != size_ * block_size) {
    return fail(ErrorCode::kInvalidArgument, str_cat(tokens.size(), " token ids for ", size_, " blocks of ", block_size,
                                                     "; give ", size_ * block_size, ", or none"));
  }
  const MutexLock lock(pool.mutex);
  CAIRN_TRY(check_distinct_keys(pool, block_ids()));
  pool.refresh();
  // Tells the observers of the new blocks up to, not including, block `end` of the run.
  const auto tell_registered = [&](std::size_t end) CAIRN_REQUIRES(pool.mutex) {
    const std::size_t count = pool.notifier.registered_count();
    pool.notifier.tell_registered(tokens.empty() ? tokens
                                                 : tokens.subspan((end - count) * block_size, count * block_size));
  };
  constexpr std::size_t kChunk = 16;
  KeyIndex::Place places[kChunk];
  for (std::size_t begin = 0; begin < size_; begin += kChunk) {
    const std::span<BlockId> chunk = block_ids().subspan(begin, std::min<std::size_t>(kChunk, size_ - begin));
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      places[i] = pool.index.place_of(pool.blocks.key(chunk[i]));
      pool.index.prefetch(places[i]);
    }
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const bool is_new = register_one(pool, chunk[i], places[i], retention);
      if (is_new && pool.notifier.is_watched()) {
        pool.notifier.add_registered(pool.blocks.resident(chunk[i]));
      } else if (!is_new) {
        tell_registered(begin + i);
      }
    }
  }
  tell_registered(size_);
  return {};
}

void Run::quarantine() {
  if (is_open()) {
    const MutexLock lock(pool_->mutex);
    pool_->blocks.quarantine(block_ids());
  }
}

void Run::release_private() {
  const MutexLock lock(pool_->mutex);
  for (std::uint32_t i = size_; i-- > 0;) {
    pool_->blocks.make_free(block_ids_[i]);
  }
  pool_->end_run(*this);
}

void Run::release_quarantined() {
  const MutexLock lock(pool_->mutex);
  pool_->blocks.release_quarantined(block_ids());
  pool_->end_run(*this);
}

void Run::abandon_quarantined() {
  const MutexLock lock(pool_->mutex);
  pool_->stats.abandoned_in_quarantine += size_;
  pool_->end_run(*this);
}

Run Run::share(std::uint32_t count) const {
  const MutexLock lock(pool_->mutex);
  return share_locked(*pool_, *this, count);
}

Run Run::pin() const {
  const MutexLock lock(pool_->mutex);
  pool_->pinned += size_;
  return share_locked(*pool_, *this, size_);
}

Status Run::set_retention(const Retention& retention) {
  if (!is_open()) {
    return {};
  }
  CAIRN_TRY(pool_->check_retention(retention));
  const MutexLock lock(pool_->mutex);
  for (const BlockId block_id : block_ids()) {
    pool_->inactive.set_retention(pool_->blocks.registered_as(block_id), retention);
  }
  return {};
}

void Run::adopt(std::span<const BlockFacts> facts) {
  constexpr std::size_t kStep = 16;
  if (!is_open()) {
    return;
  }
  PoolState& pool = *pool_;
  const MutexLock lock(pool.mutex);
  for (std::size_t begin = 0; begin < std::min<std::size_t>(facts.size(), size_); begin += kStep) {
    BlockId block_ids[kStep];
    BlockPast pasts[kStep];
    std::size_t count = 0;
    for (std::size_t i = begin; i < std::min<std::size_t>({begin + kStep, facts.size(), size_}); ++i) {
      const BlockId block_id = pool.blocks.registered_as(block_ids_[i]);
      if (pool.blocks.is_matchable(block_id)) {
        block_ids[count] = block_id;
        pasts[count++] = facts[i].past;
      }
    }
    pool.inactive.adopt({block_ids, count}, {pasts, count});
  }
}

void Run::set_reset_on_release(bool reset) {
  if (!is_open()) {
    return;
  }
  const MutexLock lock(pool_->mutex);
  for (const BlockId block_id : block_ids()) {
    pool_->blocks.set_reset_on_release(pool_->blocks.registered_as(block_id), reset);
  }
}

void Run::release_tail(std::uint32_t count) {
  const MutexLock lock(pool_->mutex);
  pool_->release(block_ids().subspan(count));
  size_ = count;
  if (count == 0) {
    pool_->end_run(*this);
  }
}

void Run::release(RequestEnding ending) {
  pool_->prefetch_tail(block_ids());
  const MutexLock lock(pool_->mutex);
  if (ending == RequestEnding::kUnknown) {
    pool_->release(block_ids());
  } else {
    pool_->inactive.begin_ending(pool_->matchable(block_ids()), ending);
    pool_->release(block_ids());
    pool_->inactive.end_ending();
  }
  pool_->end_run(*this);
}

void Run::release_pinned() {
  const MutexLock lock(pool_->mutex);
  pool_->pinned -= size_;
  pool_->release(block_ids());
  pool_->end_run(*this);
}

// In steps.
void Run::release_as_victims() {
  if (pool_->options.low_water == 0) {
    return release();
  }
  for (std::size_t begin = 0; begin < size_; begin += kStep) {
    const MutexLock lock(pool_->mutex);
    release_to_ready(*pool_, step_from(block_ids(), begin));
  }
  const MutexLock lock(pool_->mutex);
  pool_->end_run(*this);
}

// In steps as well.
void Run::return_borrowed() {
  for (std::size_t begin = 0; begin < size_; begin += kStep) {
    BlockId deferred[kStep];
    std::size_t deferred_count = 0;
    const MutexLock lock(pool_->mutex);
    for (const BlockId block_id : step_from(block_ids(), begin)) {
      if (pool_->blocks.is_inactive(block_id)) {
        pool_->inactive.on_returned();
      }
      if (pool_->blocks.end_loan(block_id)) {
        deferred[deferred_count++] = block_id;
      }
    }
    release_to_ready(*pool_, {deferred, deferred_count});
  }
  const MutexLock lock(pool_->mutex);
  pool_->end_run(*this);
}

}  // namespace cairn::internal
