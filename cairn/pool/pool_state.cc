#include "cairn/pool/pool_state.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::internal {

Result<std::unique_ptr<PoolState>> PoolState::create(const BlockPoolOptions& options) {
  CAIRN_TRY_ASSIGN(BlockRecords records, BlockRecords::create(options));
  CAIRN_TRY_ASSIGN(KeyIndex index, KeyIndex::create(options.capacity, records.key_column()));
  std::unique_ptr<PoolState> state(new PoolState(options, std::move(records), std::move(index)));
  CAIRN_TRY(state->check_retention(options.retention));
  const MutexLock lock(state->mutex);
  CAIRN_TRY_ASSIGN(InactiveBlocks::Order order, state->inactive.make_order());
  (void)state->inactive.swap_order(order);
  return state;
}

PoolState::PoolState(const BlockPoolOptions& the_options, BlockRecords records, KeyIndex empty_index)
    : options(the_options),
      clock(the_options.clock != nullptr ? *the_options.clock : steady_clock()),
      blocks(std::move(records)),
      index(std::move(empty_index)),
      inactive(options, clock, blocks, index, make_veto()),
      notifier(options.tier, options.observers, mutex),
      low_water(options.low_water),
      buffers_(options.capacity) {}

Veto PoolState::make_veto() {
  if (!options.may_evict) {
    return {};
  }
  return [this](BlockId block_id) {
    const CallbackScope scope(mutex, "may_evict of a pool");
    return !options.may_evict(block_id, blocks.key(block_id));
  };
}

Run PoolState::new_run(std::uint32_t capacity) {
  if (capacity == 0) {
    return {this, nullptr, 0, 0};
  }
  if (capacity > reserved_) {
    reserve(capacity);
  }
  const RunBuffers::Buffer buffer = buffers_.take(capacity);
  return {this, buffer.block_ids, 0, buffer.capacity};
}

// Allocates what any call with a run of this size needs, up to its release. A call does not run out of memory after it
// changed something, and a release needs no memory.
void PoolState::reserve(std::uint32_t count) {
  const std::size_t room = std::bit_ceil(std::max(count, 8U));
  scratch_.resize(std::max(scratch_.size(), room));
  victims.reserve(room);
  sorted_keys.reserve(room);
  inactive.reserve(room);
  notifier.reserve(room);
  reserved_ = static_cast<std::uint32_t>(std::min<std::size_t>(room, std::numeric_limits<std::uint32_t>::max()));
}

void PoolState::end_run(Run& run) {
  if (run.storage() != nullptr) {
    buffers_.put_back({run.storage(), run.capacity()});
  }
  run = Run(this, nullptr, 0, 0);
}

void PoolState::expire() {
  if (!inactive.keeps_time()) {
    return;
  }
  const TimePoint now = clock.now();
  for (BlockId block_id = inactive.next_expired(now); block_id != kNoBlock; block_id = inactive.next_expired(now)) {
    drop_inactive(block_id);
    ++stats.expired;
  }
}

void PoolState::remove_keys(std::span<const BlockId> block_ids) {
  index.erase(block_ids);
  inactive.forget(block_ids);
  if (notifier.is_watched()) {
    for (const BlockId block_id : block_ids) {
      notifier.add_removed(blocks.key(block_id));
    }
  }
}

void PoolState::drop_inactive(BlockId block_id) {
  notifier.reserve_removed(1);
  inactive.remove({&block_id, 1});
  remove_keys({&block_id, 1});
  blocks.make_free(block_id);
}

BlockId PoolState::release_one(BlockId block_id) {
  const BlockId unused = blocks.drop_reference(block_id);
  if (unused != kNoBlock && blocks.resets_on_release(unused)) {
    remove_keys({&unused, 1});
    blocks.make_free(unused);
    ++stats.reset;
    return kNoBlock;
  }
  return unused;
}

void PoolState::release(std::span<const BlockId> block_ids) {
  constexpr std::size_t kAhead = 16;
  BlockId* const unused = scratch(block_ids.size());
  std::size_t unused_count = 0;
  for (std::size_t i = block_ids.size(); i-- > 0;) {
    if (i >= kAhead) {
      blocks.prefetch(block_ids[i - kAhead]);
    }
    if (const BlockId block_id = release_one(block_ids[i]); block_id != kNoBlock) {
      unused[unused_count++] = block_id;
    }
  }
  if (unused_count > 0) {
    inactive.insert({unused, unused_count});
  }
  notifier.tell_removed();
}

void PoolState::prefetch_tail(std::span<const BlockId> block_ids) const {
  constexpr std::size_t kMost = 128;  // so that they are still in the cache when the lock is there
  for (const BlockId block_id : block_ids.last(std::min(block_ids.size(), kMost))) {
    blocks.prefetch(block_id);
  }
}

std::span<const BlockId> PoolState::matchable(std::span<const BlockId> block_ids) {
  BlockId* const found = scratch(block_ids.size());
  std::size_t count = 0;
  for (const BlockId block_id : block_ids) {
    const BlockId registered = blocks.registered_as(block_id);
    if (blocks.is_matchable(registered)) {
      found[count++] = registered;
    }
  }
  return {found, count};
}

// Two short waits for the lock instead of one in which every record is a cache miss that others wait for.
void PoolState::warm_up(const KeyIndex::Lookup& lookup) {
  if (!mutex.is_locked() || !lookup.fetches_ahead()) {
    return;
  }
  KeyIndex::Guesses guesses;
  {
    const MutexLock lock(mutex);
    guesses = lookup.guess_group();
  }
  for (const BlockId block_id : std::span(guesses.block_ids).first(guesses.count)) {
    blocks.prefetch(block_id);
  }
}

BlockFacts PoolState::facts(BlockId block_id) const {
  BlockFacts facts = blocks.facts(block_id);
  facts.past = inactive.past_of(block_id);
  if (const RetentionClock* const times = inactive.times()) {
    facts.priority_ms = times->priority_ms(block_id);
    facts.time_to_live_ms = times->time_to_live_ms(block_id);
  }
  return facts;
}

Status PoolState::check_retention(const Retention& retention) const {
  if (retention.priority > Retention::kMaxPriority) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("priority ", retention.priority, " is beyond ", Retention::kMaxPriority, ", the highest"));
  }
  if ((retention.time_to_live || retention.priority_duration) && !options.time_to_live) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("a block was given a ", retention.time_to_live ? "time to live" : "priority for a time",
                        ", but the pool keeps no time; create it with time_to_live"));
  }
  if (retention.priority_duration && *retention.priority_duration <= Duration::zero()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a priority for ", retention.priority_duration->count(),
                                                     " ns is none; give a positive time, or no priority"));
  }
  if (retention.time_to_live && *retention.time_to_live <= Duration::zero()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a time to live of ", retention.time_to_live->count(),
                                                     " ns is none; give a positive one, or use reset_on_release"));
  }
  return {};
}

std::size_t PoolState::bytes() {
  return sizeof(*this) + blocks.bytes() + index.bytes() + inactive.bytes() + notifier.bytes() + buffers_.bytes() +
         (scratch_.capacity() + victims.capacity()) * sizeof(BlockId) + sorted_keys.capacity() * sizeof(BlockKey);
}

void PoolState::check_invariants() {
  blocks.check_invariants();
  inactive.check_invariants();
  std::uint32_t matchable = 0;
  for (std::uint32_t i = 0; i < blocks.used_end(); ++i) {
    const BlockId block_id{i};
    const BlockRecords::State state = blocks.state(block_id);
    if (state != BlockRecords::State::kRegistered && state != BlockRecords::State::kDiscarded) {
      continue;
    }
    const bool is_matchable = blocks.is_matchable(block_id);
    matchable += is_matchable ? 1 : 0;
    CAIRN_CHECK((index.find(blocks.key(block_id)) == block_id) == is_matchable,
                "P1: exactly the blocks that can be matched are found under their keys");
  }
  CAIRN_CHECK(matchable == index.size(), "P1: registered blocks add up");
  CAIRN_CHECK(
      blocks.free_count() + blocks.unreclaimed() + inactive.size() + blocks.quarantined_count() <= blocks.capacity(),
      "P2: blocks add up");
}

}  // namespace cairn::internal
