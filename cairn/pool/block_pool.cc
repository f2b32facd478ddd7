#include "cairn/pool/block_pool.h"

#include <algorithm>
#include <utility>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/pool/pool_state.h"

namespace cairn {

using internal::PoolState;
using internal::Run;

namespace {

Status check_options(const BlockPoolOptions& options) {
  if (options.capacity == 0) {
    return fail(ErrorCode::kInvalidArgument, "the pool's capacity is 0; give the number of blocks it holds");
  }
  if (options.capacity >= index_of(kNoBlock)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a pool of ", options.capacity, " blocks is too large; use several pools"));
  }
  if (options.block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "the pool's block size is 0; give the number of tokens in a block");
  }
  if (options.low_water > options.capacity) {
    return fail(ErrorCode::kInvalidArgument, str_cat("low_water is ", options.low_water, " blocks and the pool has ",
                                                     options.capacity, "; keep fewer ready"));
  }
  if (std::ranges::find(options.observers, nullptr) != options.observers.end()) {
    return fail(ErrorCode::kInvalidArgument, "an observer of the pool is null");
  }
  return {};
}

void call_when_low(PoolState& pool) CAIRN_REQUIRES(pool.mutex) {
  if (pool.blocks.free_count() + pool.blocks.unreclaimed() + pool.inactive.ready_count() < pool.low_water &&
      pool.inactive.unready_count() > 0 && pool.options.when_low) {
    const CallbackScope scope(pool.mutex, "when_low of a pool");
    pool.options.when_low();
  }
}

// Fills the run with blocks for the tenant, free ones and evicted ones. Evicted blocks are also added to pool.victims:
// they still have their keys. If it fails, the run holds the blocks that it got.
Status gather(PoolState& pool, Run& run, std::uint32_t count, TenantId tenant) CAIRN_REQUIRES(pool.mutex) {
  TenantLedger& tenants = pool.blocks.tenants();
  // Tenants whose blocks cannot be evicted: others' are below them, or may_evict refused.
  TenantLedger::TenantSet barren;
  while (run.size() < count) {
    const TenantLedger::Next next = tenants.next_source(tenant, pool.blocks.free_count(), barren);
    std::span<BlockId> taken(run.storage() + run.size(), std::min(next.count, count - run.size()));
    if (next.source == TenantLedger::Source::kFree) {
      for (BlockId& block_id : taken) {
        block_id = pool.blocks.take_free();
      }
    } else if (next.source == TenantLedger::Source::kEvict) {
      taken = taken.first(pool.inactive.evict(next.victim, taken));
      if (taken.empty()) {
        barren.set(index_of(next.victim));
        continue;
      }
      barren.reset();  // a block that had children of other tenants may be a leaf now
      tenants.discharge(next.victim, static_cast<std::uint32_t>(taken.size()));
      pool.victims.insert(pool.victims.end(), taken.begin(), taken.end());
    } else {
      // Every tenant that should give is barren: evict what is in their way, whatever its tenant.
      const BlockId block_id = pool.inactive.evict_any();
      if (block_id == kNoBlock) {
        return fail(ErrorCode::kExhausted,
                    str_cat("cannot allocate ", count, " blocks: ", run.size(),
                            " available, may_evict refused the others or a copy reads them; retry later"));
      }
      barren.reset();
      pool.victims.push_back(block_id);
      pool.blocks.make_free(block_id);
      continue;
    }
    tenants.charge(tenant, static_cast<std::uint32_t>(taken.size()));
    run.resize(run.size() + static_cast<std::uint32_t>(taken.size()));
  }
  return {};
}

Result<Run> allocate_run(PoolState& pool, std::uint32_t count, TenantId tenant, std::vector<BlockKey>* evicted) {
  const MutexLock lock(pool.mutex);
  pool.refresh();
  if (pool.blocks.unreclaimed() > 0) {
    pool.blocks.sweep_for(count, tenant);
  }
  pool.largest_allocation = std::max(pool.largest_allocation, count);
  if (Status status = pool.blocks.tenants().can_take(tenant, count, pool.blocks.free_count()); !status) {
    ++pool.stats.allocation_failures;
    call_when_low(pool);
    return Unexpected(std::move(status).error());
  }
  const std::uint32_t borrowed = pool.inactive.borrowed_count();
  const std::uint32_t available = pool.blocks.free_count() + pool.inactive.size() - borrowed;
  if (borrowed > 0 && count > available) {
    ++pool.stats.allocation_failures;
    call_when_low(pool);
    return fail(ErrorCode::kExhausted,
                str_cat("cannot allocate ", count, " blocks: ", available, " available while a copy reads ", borrowed,
                        " more; retry when it has ended"));
  }
  Run run = pool.new_run(count);
  Status gathered = gather(pool, run, count, tenant);
  if (evicted != nullptr) {
    for (const BlockId block_id : pool.victims) {
      evicted->push_back(pool.blocks.key(block_id));
    }
  }
  pool.stats.evicted += pool.victims.size();
  pool.inactive.observe_evictions(static_cast<std::uint32_t>(pool.victims.size()));
  pool.remove_keys(pool.victims);
  pool.victims.clear();
  pool.blocks.make_private(run.block_ids(), tenant);
  pool.notifier.tell_evicted();
  call_when_low(pool);
  if (!gathered) {
    ++pool.stats.allocation_failures;
    for (const BlockId block_id : run.block_ids()) {
      pool.blocks.make_free(block_id);
    }
    pool.end_run(run);
    return Unexpected(std::move(gathered).error());
  }
  pool.stats.allocated += count;
  return run;
}

// The keys that are resident, misses skipped. `position` may be null.
Run match_each(PoolState& pool, std::span<const BlockKey> keys, std::vector<std::optional<std::uint32_t>>* position) {
  KeyIndex::Lookup lookup(pool.index, keys);
  const MutexLock lock(pool.mutex);
  pool.refresh();
  Run run = pool.new_run(static_cast<std::uint32_t>(keys.size()));
  PoolState::Matched matched = pool.new_match(keys.size());
  lookup.for_each([&](std::size_t i, BlockId block_id) CAIRN_REQUIRES(pool.mutex) {
    if (block_id != kNoBlock) {
      matched.add(block_id, pool.blocks.add_reference(block_id));
      pool.notifier.add_matched(keys[i]);
      if (position != nullptr) {
        (*position)[i] = run.size();
      }
      run.push_back(block_id);
    }
    return true;
  });
  pool.inactive.match(matched.inactive(), matched.in_use());
  pool.stats.lookups += keys.size();
  pool.stats.hits += run.size();
  pool.notifier.tell_matched();
  if (run.size() == 0) {
    pool.end_run(run);
  }
  return run;
}

// Gives the blocks to restore their keys and puts them into the index. If it fails, none of them is in the index.
Status index_restored(PoolState& pool, std::span<const RestoredBlock> blocks) CAIRN_REQUIRES(pool.mutex) {
  constexpr std::size_t kAhead = 16;
  const std::uint32_t capacity = pool.options.capacity;
  std::vector<bool> taken(capacity);
  Status status;
  std::vector<BlockId> indexed;
  indexed.reserve(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockId block_id = blocks[i].block_id;
    const BlockKey& key = blocks[i].key;
    if (i + kAhead < blocks.size()) {
      const RestoredBlock& ahead = blocks[i + kAhead];
      pool.index.prefetch(pool.index.place_of(ahead.key));
      if (index_of(ahead.block_id) < capacity) {
        pool.blocks.prefetch(ahead.block_id);
      }
    }
    const KeyIndex::Place place = pool.index.place_of(key);
    if (index_of(block_id) >= capacity) {
      status = fail(ErrorCode::kOutOfRange,
                    str_cat("entry ", i, " to restore is in block ", index_of(block_id), " of a pool of ", capacity));
    } else if (taken[index_of(block_id)]) {
      status = fail(ErrorCode::kInvalidArgument,
                    str_cat("block ", index_of(block_id), " is twice among the blocks to restore"));
    } else if (pool.index.find(key, place) != kNoBlock) {
      status =
          fail(ErrorCode::kInvalidArgument, str_cat("key ", key.to_string(), " is twice among the blocks to restore"));
    }
    if (!status) {
      pool.index.erase(indexed);
      break;
    }
    taken[index_of(block_id)] = true;
    pool.blocks.set_restored_key(block_id, key);
    pool.index.insert(block_id, place);
    indexed.push_back(block_id);
  }
  return status;
}

// Parents before their children, as for new blocks: the reverse of the order in which they were released.
void tell_restored(PoolState& pool, std::span<const RestoredBlock> blocks) CAIRN_REQUIRES(pool.mutex) {
  constexpr std::size_t kMostTold = 1024;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    const BlockId block_id = blocks[i].block_id;
    const bool parent_follows = i + 1 < blocks.size() && blocks[i + 1].key.is_parent_of(blocks[i].key);
    pool.blocks.set_unknown_parent(block_id,
                                   parent_follows ? blocks[i + 1].block_id : pool.index.find_parent(blocks[i].key));
    if (pool.notifier.is_watched()) {
      pool.notifier.add_registered(pool.blocks.resident(block_id));
      if (pool.notifier.registered_count() == kMostTold || i == 0) {
        pool.notifier.tell_registered({});
      }
    }
  }
}

// The block after the last of `count` blocks from `first` on.
std::uint32_t end_of(const PoolState& pool, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t capacity = pool.options.capacity;
  return capacity - std::min(first, capacity) < count ? capacity : first + count;
}

}  // namespace

// What takes the place of a pool's own when a fence is raised.
struct PoolFence::Tables {
  KeyIndex index;
  InactiveBlocks::Order order;
};

PoolFence::PoolFence(std::unique_ptr<Tables> tables) : tables_(std::move(tables)) {}
PoolFence::PoolFence(PoolFence&&) noexcept = default;
PoolFence& PoolFence::operator=(PoolFence&&) noexcept = default;
PoolFence::~PoolFence() = default;

Result<std::unique_ptr<BlockPool>> BlockPool::create(const BlockPoolOptions& options) {
  CAIRN_TRY(check_options(options));
  CAIRN_TRY_ASSIGN(std::unique_ptr<PoolState> state, PoolState::create(options));
  return std::unique_ptr<BlockPool>(new BlockPool(std::move(state)));
}

BlockPool::BlockPool(std::unique_ptr<PoolState> state) : state_(std::move(state)) {}

BlockPool::~BlockPool() {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  CAIRN_CHECK(pool.blocks.free_count() + pool.inactive.size() + pool.blocks.unreclaimed() +
                      pool.stats.abandoned_in_quarantine ==
                  pool.options.capacity,
              "every handle is gone before its pool is destroyed");
  CAIRN_CHECK(pool.blocks.borrowed_count() == 0, "every block is returned before its pool is destroyed");
  CAIRN_CHECK(pool.weak_handles.load(std::memory_order_relaxed) == 0,
              "every WeakBlocks is gone before its pool is destroyed");
}

Result<MutableBlocks> BlockPool::allocate(std::uint32_t count, TenantId tenant) {
  CAIRN_TRY_ASSIGN(Run run, allocate_run(*state_, count, tenant, nullptr));
  return MutableBlocks(std::move(run));
}

Result<MutableBlocks> BlockPool::allocate(std::uint32_t count, TenantId tenant, std::vector<BlockKey>& evicted) {
  CAIRN_TRY_ASSIGN(Run run, allocate_run(*state_, count, tenant, &evicted));
  return MutableBlocks(std::move(run));
}

ImmutableBlocks BlockPool::match_prefix(std::span<const BlockKey> keys) {
  PoolState& pool = *state_;
  KeyIndex::Lookup lookup(pool.index, keys);
  pool.warm_up(lookup);
  const MutexLock lock(pool.mutex);
  pool.refresh();
  Run run = pool.new_run(static_cast<std::uint32_t>(keys.size()));
  BlockId* const block_ids = run.storage();
  std::size_t count = 0;
  PoolState::Matched matched = pool.new_match(keys.size());
  lookup.for_each([&](std::size_t /*i*/, BlockId block_id) {
    if (block_id == kNoBlock) {
      return false;
    }
    matched.add(block_id, pool.blocks.add_reference(block_id));
    block_ids[count++] = block_id;
    return true;
  });
  run.resize(static_cast<std::uint32_t>(count));
  pool.inactive.match(matched.inactive(), matched.in_use());
  pool.stats.lookups += keys.size();
  pool.stats.hits += count;
  pool.notifier.tell_matched(keys.first(count));
  if (count == 0) {
    pool.end_run(run);
  }
  return ImmutableBlocks(std::move(run));
}

ScatteredMatch BlockPool::match_scattered(std::span<const BlockKey> keys) {
  ScatteredMatch match;
  match.position.assign(keys.size(), std::nullopt);
  match.blocks = ImmutableBlocks(match_each(*state_, keys, &match.position));
  return match;
}

ImmutableBlocks BlockPool::scan(std::span<const BlockKey> keys) {
  return ImmutableBlocks(match_each(*state_, keys, nullptr));
}

ImmutableBlocks BlockPool::claim_victims(std::uint32_t count) {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.refresh();
  const std::uint32_t most = pool.inactive.keeps_ready_blocks() ? std::min(count, pool.inactive.unready_count()) : 0;
  Run run = pool.new_run(most);
  if (most > 0) {
    run.resize(static_cast<std::uint32_t>(pool.inactive.claim({run.storage(), most})));
    for (const BlockId block_id : run.block_ids()) {
      (void)pool.blocks.add_reference(block_id);
    }
  }
  if (run.size() == 0) {
    pool.end_run(run);
  }
  return ImmutableBlocks(std::move(run));
}

std::uint32_t BlockPool::wanted_victims() const {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.refresh();
  const std::uint64_t at_hand = std::uint64_t{pool.blocks.free_count()} + pool.blocks.unreclaimed() +
                                pool.inactive.ready_count() + pool.blocks.deferred_count();
  if (at_hand >= pool.low_water) {
    return 0;
  }
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(2 * std::uint64_t{pool.low_water} - at_hand, pool.inactive.unready_count()));
}

void BlockPool::set_low_water(std::uint32_t blocks) {
  const MutexLock lock(state_->mutex);
  if (state_->inactive.keeps_ready_blocks()) {
    state_->low_water = std::clamp(blocks, state_->options.low_water, state_->options.capacity);
  }
}

std::uint32_t BlockPool::take_largest_allocation() {
  const MutexLock lock(state_->mutex);
  return std::exchange(state_->largest_allocation, 0);
}

BorrowedBlocks BlockPool::borrow(std::span<const BlockKey> keys) {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.refresh();
  Run run = pool.new_run(static_cast<std::uint32_t>(keys.size()));
  for (const BlockKey& key : keys) {
    const BlockId block_id = pool.index.find(key);
    if (block_id == kNoBlock || pool.blocks.is_borrowed(block_id)) {
      continue;
    }
    pool.blocks.lend(block_id);
    if (!pool.blocks.is_in_use(block_id)) {
      pool.inactive.on_lent();
    }
    run.push_back(block_id);
  }
  if (run.size() == 0) {
    pool.end_run(run);
  }
  return BorrowedBlocks(std::move(run));
}

std::vector<std::optional<PeekedBlock>> BlockPool::peek(std::span<const BlockKey> keys) const {
  PoolState& pool = *state_;
  std::vector<std::optional<PeekedBlock>> seen;
  seen.reserve(keys.size());
  const MutexLock lock(pool.mutex);
  pool.refresh();
  for (const BlockKey& key : keys) {
    const BlockId block_id = pool.index.find(key);
    if (block_id == kNoBlock) {
      seen.emplace_back();
      continue;
    }
    const BlockId parent = pool.index.find_parent(key);
    seen.push_back(PeekedBlock{.facts = pool.facts(block_id),
                               .parent = parent == kNoBlock ? std::nullopt : std::optional(pool.blocks.key(parent)),
                               .in_use = pool.blocks.is_in_use(block_id),
                               .tenant = pool.blocks.tenant_of(block_id)});
  }
  return seen;
}

bool BlockPool::contains_parent_of(const BlockKey& key) const {
  const MutexLock lock(state_->mutex);
  state_->refresh();
  return state_->index.find_parent(key) != kNoBlock;
}

PinnedBlocks BlockPool::hold(std::span<const BlockKey> keys) {
  PoolState& pool = *state_;
  KeyIndex::Lookup lookup(pool.index, keys);
  const MutexLock lock(pool.mutex);
  pool.refresh();
  Run run = pool.new_run(static_cast<std::uint32_t>(keys.size()));
  PoolState::Matched matched = pool.new_match(keys.size());
  lookup.for_each([&](std::size_t /*i*/, BlockId block_id) CAIRN_REQUIRES(pool.mutex) {
    if (block_id != kNoBlock) {
      matched.add(block_id, pool.blocks.add_reference(block_id));
      run.push_back(block_id);
    }
    return true;
  });
  pool.inactive.hold(matched.inactive());
  pool.pinned += run.size();
  if (run.size() == 0) {
    pool.end_run(run);
  }
  return PinnedBlocks(std::move(run));
}

PinnedBlocks BlockPool::pin_prefix(std::span<const BlockKey> keys, LoadUse use) {
  PoolState& pool = *state_;
  KeyIndex::Lookup lookup(pool.index, keys);
  const MutexLock lock(pool.mutex);
  pool.refresh();
  Run run = pool.new_run(static_cast<std::uint32_t>(keys.size()));
  PoolState::Matched matched = pool.new_match(keys.size());
  lookup.for_each([&](std::size_t /*i*/, BlockId block_id) CAIRN_REQUIRES(pool.mutex) {
    if (block_id == kNoBlock) {
      return false;
    }
    matched.add(block_id, pool.blocks.add_reference(block_id));
    run.push_back(block_id);
    return true;
  });
  if (use == LoadUse::kCounts) {
    pool.inactive.match(matched.inactive(), matched.in_use());
    pool.notifier.tell_loaded(keys.first(run.size()));
  } else {
    pool.inactive.hold(matched.inactive());
  }
  pool.pinned += run.size();
  if (run.size() == 0) {
    pool.end_run(run);
  }
  return PinnedBlocks(std::move(run));
}

bool BlockPool::contains(const BlockKey& key) const { return count_prefix({&key, 1}) == 1; }

std::uint32_t BlockPool::count_prefix(std::span<const BlockKey> keys) const {
  KeyIndex::Lookup lookup(state_->index, keys);
  const MutexLock lock(state_->mutex);
  state_->refresh();
  std::uint32_t count = 0;
  lookup.for_each([&](std::size_t /*i*/, BlockId block_id) {
    count += block_id != kNoBlock ? 1 : 0;
    return block_id != kNoBlock;
  });
  return count;
}

Result<std::uint32_t> BlockPool::hint(std::span<const BlockKey> keys, const RetentionHint& hint) {
  PoolState& pool = *state_;
  if (!pool.options.hints) {
    return fail(ErrorCode::kFailedPrecondition, "the pool takes no hints; create it with hints");
  }
  if (hint.in < Duration::zero()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a block is said to return ", -hint.in.count(), " ns ago; give a time from now on"));
  }
  const MutexLock lock(pool.mutex);
  pool.refresh();
  const TimePoint now = pool.clock.now();
  std::uint32_t found = 0;
  for (const BlockKey& key : keys) {
    const BlockId block_id = pool.index.find(key);
    if (block_id == kNoBlock) {
      continue;
    }
    ++found;
    // If other sessions use the block too, the end of one says nothing about it.
    if (hint.kind != RetentionHint::Kind::kWillNotReturn || pool.blocks.references(block_id) <= 1) {
      pool.inactive.hint(block_id, hint, now);
    }
  }
  return found;
}

std::uint32_t BlockPool::end_request(std::span<const BlockKey> keys, RequestEnding ending) {
  PoolState& pool = *state_;
  KeyIndex::Lookup lookup(pool.index, keys);
  const MutexLock lock(pool.mutex);
  pool.refresh();
  BlockId* const block_ids = pool.scratch(keys.size());
  std::size_t count = 0;
  lookup.for_each([&](std::size_t /*i*/, BlockId block_id) {
    block_ids[count] = block_id;
    count += block_id != kNoBlock ? 1 : 0;
    return true;
  });
  pool.inactive.begin_ending({block_ids, count}, ending);
  pool.inactive.end_ending();
  return static_cast<std::uint32_t>(count);
}

ResetOutcome BlockPool::reset(std::span<const BlockKey> keys) {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.expire();
  ResetOutcome outcome;
  for (const BlockKey& key : keys) {
    const BlockId block_id = pool.index.find(key);
    if (block_id == kNoBlock) {
      ++outcome.not_found;
    } else if (pool.blocks.is_in_use(block_id)) {
      ++outcome.in_use;
    } else {
      pool.drop_inactive(block_id);
      ++outcome.reset;
    }
  }
  pool.stats.reset += outcome.reset;
  pool.notifier.tell_removed();
  return outcome;
}

std::uint32_t BlockPool::reset_inactive() {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.refresh();
  const std::uint32_t count = pool.inactive.size();
  pool.victims.reserve(count);
  pool.notifier.reserve_removed(count);
  pool.inactive.take_all(pool.victims);
  pool.remove_keys(pool.victims);
  for (const BlockId block_id : pool.victims) {
    pool.blocks.make_free(block_id);
  }
  pool.victims.clear();
  pool.stats.reset += count;
  if (pool.index.size() == 0 && count > 0) {
    pool.notifier.tell_cleared();
  } else {
    pool.notifier.tell_removed();
  }
  return count;
}

std::uint32_t BlockPool::discard(std::span<const BlockKey> keys) {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.expire();
  std::uint32_t found = 0;
  for (const BlockKey& key : keys) {
    const BlockId block_id = pool.index.find(key);
    if (block_id == kNoBlock) {
      continue;
    }
    ++found;
    if (pool.blocks.is_in_use(block_id)) {
      pool.remove_keys({&block_id, 1});
      pool.blocks.discard(block_id);
    } else {
      pool.drop_inactive(block_id);
    }
  }
  pool.stats.discarded += found;
  pool.notifier.tell_removed();
  return found;
}

Result<PoolFence> BlockPool::plan_fence() const {
  CAIRN_TRY_ASSIGN(KeyIndex index, state_->index.make_empty());
  CAIRN_TRY_ASSIGN(InactiveBlocks::Order order, state_->inactive.make_order());
  return PoolFence(std::make_unique<PoolFence::Tables>(PoolFence::Tables{std::move(index), std::move(order)}));
}

// The fence holds the tables of before afterwards, which are freed without the lock.
PoolFenceOutcome BlockPool::raise_fence(PoolFence fence) {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  const std::uint32_t registered = pool.index.size();
  const std::uint32_t inactive = pool.inactive.swap_order(fence.tables_->order);
  pool.index.swap_entries(fence.tables_->index);
  pool.blocks.raise_fence(inactive);
  pool.stats.reset += registered;
  if (registered > 0) {
    pool.notifier.tell_cleared();
  }
  return {.dropped = inactive, .in_use = registered - inactive};
}

void BlockPool::lower_fence() {
  const MutexLock lock(state_->mutex);
  state_->blocks.lower_fence();
}

bool BlockPool::reclaim(std::uint32_t count) {
  const MutexLock lock(state_->mutex);
  return state_->blocks.sweep(count);
}

Result<void> BlockPool::restore(std::span<const RestoredBlock> blocks) {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  if (pool.blocks.used_end() > 0) {
    return fail(ErrorCode::kFailedPrecondition, "the pool was used before; restore its blocks before anything else");
  }
  if (blocks.size() > pool.options.capacity) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(blocks.size(), " blocks to restore in a pool of ", pool.options.capacity));
  }
  const auto count = static_cast<std::uint32_t>(blocks.size());
  CAIRN_TRY(pool.blocks.tenants().can_take(kDefaultTenant, count, pool.blocks.free_count()));
  CAIRN_TRY(index_restored(pool, blocks));
  pool.blocks.restore(blocks);
  BlockId* const block_ids = pool.scratch(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    block_ids[i] = blocks[i].block_id;
    pool.inactive.set_retention(block_ids[i], pool.options.retention);
  }
  if (count > 0) {
    pool.inactive.insert({block_ids, count});
  }
  pool.stats.registered += count;
  tell_restored(pool, blocks);
  return {};
}

std::uint32_t BlockPool::list_resident(std::uint32_t first, std::uint32_t count,
                                       std::vector<ResidentBlock>& out) const {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.refresh();
  const std::uint32_t end = end_of(pool, first, count);
  for (std::uint32_t i = first; i < std::min(end, pool.blocks.used_end()); ++i) {
    if (pool.blocks.is_matchable(BlockId{i})) {
      out.push_back(pool.blocks.resident(BlockId{i}));
    }
  }
  return end;
}

std::uint32_t BlockPool::list_blocks(std::uint32_t first, std::uint32_t count, std::size_t most,
                                     std::vector<ListedBlock>& out) const {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  const std::uint32_t end = end_of(pool, first, count);
  for (std::uint32_t i = first; i < std::min(end, pool.blocks.used_end()); ++i) {
    if (pool.blocks.is_matchable(BlockId{i})) {
      if (most-- == 0) {
        return i;
      }
      out.push_back({.block_id = BlockId{i}, .facts = pool.facts(BlockId{i})});
    }
  }
  return end >= pool.blocks.used_end() ? pool.options.capacity : end;
}

PoolCounts BlockPool::counts() const {
  PoolState& pool = *state_;
  const MutexLock lock(pool.mutex);
  pool.refresh();
  PoolCounts counts;
  counts.total = pool.options.capacity;
  counts.free = pool.blocks.free_count() + pool.blocks.unreclaimed();
  counts.inactive = pool.inactive.size();
  counts.quarantined = pool.blocks.quarantined_count();
  counts.active = counts.total - counts.free - counts.inactive - counts.quarantined;
  counts.registered = pool.index.size();
  counts.pinned = pool.pinned;
  counts.ready = pool.inactive.ready_count();
  counts.borrowed = pool.inactive.borrowed_count();
  return counts;
}

PoolStats BlockPool::stats() const {
  const MutexLock lock(state_->mutex);
  state_->refresh();
  return state_->stats;
}

Result<TenantUsage> BlockPool::usage(TenantId tenant) const {
  const MutexLock lock(state_->mutex);
  state_->refresh();
  return state_->blocks.tenants().usage(tenant);
}

std::uint32_t BlockPool::capacity() const { return state_->options.capacity; }
std::uint32_t BlockPool::block_size() const { return state_->options.block_size; }
const KeySeed& BlockPool::seed() const { return state_->options.seed ? *state_->options.seed : KeySeed::of_process(); }
CacheLevel BlockPool::tier() const { return state_->options.tier; }

std::size_t BlockPool::bytes() const {
  const MutexLock lock(state_->mutex);
  return state_->bytes();
}

void BlockPool::check_invariants() const {
  const MutexLock lock(state_->mutex);
  state_->check_invariants();
}

}  // namespace cairn
