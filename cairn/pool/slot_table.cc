#include "cairn/pool/slot_table.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

Result<std::unique_ptr<SlotTable>> SlotTable::create(const BlockPoolOptions& options) {
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
  for (const PoolObserver* observer : options.observers) {
    if (observer == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "an observer of the pool is null");
    }
  }
  Result<TenantLedger> tenants = TenantLedger::create(options.tenants, options.capacity);
  if (!tenants) {
    return Unexpected(std::move(tenants).error());
  }
  constexpr std::uint32_t kMostClasses = std::uint32_t{std::numeric_limits<std::uint16_t>::max()} + 1;
  if (class_count(options, tenants->tenant_count()) > kMostClasses) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(tenants->tenant_count(), " tenants are more than the ", kMostClasses / class_count(options, 1),
                        " that a pool with hints can have; use several pools"));
  }
  Result<PageArray<Record>> records = PageArray<Record>::create(options.capacity);
  if (!records) {
    return Unexpected(std::move(records).error());
  }
  Result<PageArray<BlockHash>> tokens_hashes = PageArray<BlockHash>::create(options.capacity);
  if (!tokens_hashes) {
    return Unexpected(std::move(tokens_hashes).error());
  }
  Result<KeyIndex> index = KeyIndex::create(options.capacity, Column<BlockKey>(&records->data()->key, sizeof(Record)));
  if (!index) {
    return Unexpected(std::move(index).error());
  }
  std::unique_ptr<SlotTable> table(
      new SlotTable(options, *std::move(records), *std::move(tokens_hashes), *std::move(index), *std::move(tenants)));
  if (options.notes) {
    Result<PageArray<std::uint64_t>> notes = PageArray<std::uint64_t>::create(options.capacity);
    if (!notes) {
      return Unexpected(std::move(notes).error());
    }
    table->notes_ = *std::move(notes);
  }
  const MutexLock lock(table->mutex_);
  if (const Status status = table->check_retention(options.retention); !status) {
    return Unexpected(status.error());
  }
  Result<internal::BlockOrder> order = table->make_order();
  if (!order) {
    return Unexpected(std::move(order).error());
  }
  table->policy_ = std::move(order->policy);
  table->ready_ = std::move(order->ready);
  table->retention_clock_ = std::move(order->retention_clock);
  table->hints_ = std::move(order->hints);
  return table;
}

Result<internal::BlockOrder> SlotTable::make_order() const {
  const auto tenants = static_cast<std::uint32_t>(std::max<std::size_t>(1, options_.tenants.size()));
  internal::BlockOrder order;
  Result<std::unique_ptr<EvictionPolicy>> policy = make_policy(
      options_.policy, PolicyView{
                           .capacity = options_.capacity,
                           .class_count = class_count(options_, tenants),
                           .keys = Column<BlockKey>(&records_.data()->key, sizeof(Record)),
                           .classes = Column<EvictionClass>(&records_.data()->eviction_class, sizeof(Record)),
                           .parents = this,
                           .leaves_first = options_.leaves_first,
                           .seed = seed(),
                       });
  if (!policy) {
    return Unexpected(std::move(policy).error());
  }
  order.policy = *std::move(policy);
  if (options_.time_to_live || options_.hints) {
    Result<RetentionClock> clock = RetentionClock::create(options_.capacity);
    if (!clock) {
      return Unexpected(std::move(clock).error());
    }
    order.retention_clock = *std::move(clock);
  }
  if (options_.hints) {
    Result<HintBook> hints = HintBook::create(options_.capacity, tenants, seed());
    if (!hints) {
      return Unexpected(std::move(hints).error());
    }
    order.hints = *std::move(hints);
  }
  if (options_.low_water > 0) {
    Result<ReadyQueue> ready = ReadyQueue::create(options_.capacity, tenants);
    if (!ready) {
      return Unexpected(std::move(ready).error());
    }
    order.ready = *std::move(ready);
  }
  return order;
}

SlotTable::SlotTable(const BlockPoolOptions& options, PageArray<Record> records, PageArray<BlockHash> tokens_hashes,
                     KeyIndex index, TenantLedger tenants)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : steady_clock()),
      watched_(!options.observers.empty()),
      level_bits_(level_bits(options)),
      records_(std::move(records)),
      tokens_hashes_(std::move(tokens_hashes)),
      index_(std::move(index)),
      tenants_(std::move(tenants)),
      buffers_(options.capacity),
      free_(options.capacity),
      low_water_(options.low_water) {
  if (options_.may_evict) {
    veto_ = [this](BlockId block_id) {
      const CallbackScope scope(mutex_, "may_evict of a pool");
      return !options_.may_evict(block_id, at(block_id).key);
    };
  }
  veto_beside_ready_ = [this](BlockId block_id)
                           CAIRN_REQUIRES(mutex_) { return ready_->below(block_id) > 0 || (veto_ && veto_(block_id)); };
}

SlotTable::~SlotTable() {
  const MutexLock lock(mutex_);
  if (policy_ == nullptr) {
    return;  // creation failed
  }
  CAIRN_CHECK(
      free_ + policy_->size() + ready_count() + unreclaimed_ + stats_.abandoned_in_quarantine == options_.capacity,
      "every handle is gone before its pool is destroyed");
  CAIRN_CHECK(borrowed_ == 0, "every block is given back before its pool is destroyed");
  CAIRN_CHECK(weak_.load(std::memory_order_relaxed) == 0, "every WeakBlocks is gone before its pool is destroyed");
}

// Room for this many blocks until the next call; kept between calls so that nothing is allocated in the long run.
BlockId* SlotTable::scratch(std::size_t count) {
  if (scratch_.size() < count) {
    scratch_.resize(count);
  }
  return scratch_.data();
}

ClassRange SlotTable::classes_of(TenantId tenant) const {
  return {(index_of(tenant) * kPriorities) << level_bits_, ((index_of(tenant) + 1) * kPriorities) << level_bits_};
}

SlotTable::Run SlotTable::new_run(std::uint32_t capacity) {
  if (capacity == 0) {
    return {this, nullptr, 0, 0};
  }
  if (capacity > room_) {
    make_room(capacity);
  }
  const RunBuffers::Buffer buffer = buffers_.take(capacity);
  return {this, buffer.block_ids, 0, buffer.capacity};
}

// Memory for whatever is done with a run of this size, from its making to its release: nothing fails in the middle of a
// change, and a release needs none.
void SlotTable::make_room(std::uint32_t blocks) {
  const std::size_t room = std::bit_ceil(std::max(blocks, 8U));
  scratch_.resize(std::max(scratch_.size(), 2 * room));
  collected_.reserve(room);
  sorted_keys_.reserve(room);
  if (ready_) {
    ordinary_.reserve(room);
  }
  if (watched_) {
    removed_keys_.reserve(room);
    matched_keys_.reserve(room);
    new_blocks_.reserve(room);
  }
  room_ = static_cast<std::uint32_t>(std::min<std::size_t>(room, std::numeric_limits<std::uint32_t>::max()));
}

// Memory to tell observers of one more key that goes.
void SlotTable::make_room_for_removal() {
  if (watched_ && removed_keys_.size() == removed_keys_.capacity()) {
    removed_keys_.reserve(std::max<std::size_t>(8, 2 * removed_keys_.size()));
  }
}

void SlotTable::end_run(Run& run) {
  if (run.storage() != nullptr) {
    buffers_.give_back({run.storage(), run.capacity()});
  }
  run = Run(this, nullptr, 0, 0);
}

BlockId SlotTable::take_free() {
  --free_;
  if (first_free_ == kNoBlock) {
    return BlockId{never_used_++};
  }
  return std::exchange(first_free_, at(first_free_).link);
}

void SlotTable::make_free(BlockId block_id) {
  Record& record = at(block_id);
  if (record.is_borrowed) [[unlikely]] {
    record.state = State::kQuarantined;  // until it is given back
    ++quarantined_;
    return;
  }
  tenants_.discharge(tenant_of(record), 1);
  record.state = State::kFree;
  record.link = std::exchange(first_free_, block_id);
  ++free_;
}

Result<SlotTable::Run> SlotTable::allocate(std::uint32_t count, TenantId tenant, std::vector<BlockKey>* evicted) {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  if (unreclaimed_ > 0) {
    reclaim_for(count, tenant);
  }
  largest_allocation_ = std::max(largest_allocation_, count);
  if (const Status status = tenants_.can_take(tenant, count, free_); !status) {
    ++stats_.allocation_failures;
    call_when_low();
    return Unexpected(status.error());
  }
  const std::uint32_t now = free_ + policy_->size() + ready_count() - borrowed_inactive_;
  if (borrowed_inactive_ > 0 && count > now) {
    ++stats_.allocation_failures;
    call_when_low();
    return fail(ErrorCode::kExhausted, str_cat(count, " blocks asked for and ", now, " to be had while ",
                                               borrowed_inactive_, " more are being copied; retry when they are"));
  }
  Run run = new_run(count);
  const Status gathered = gather(run, count, tenant);
  if (evicted != nullptr) {
    for (const BlockId block_id : collected_) {
      evicted->push_back(at(block_id).key);
    }
  }
  stats_.evicted += collected_.size();
  if (hints_ && !collected_.empty()) {
    hints_->observe(0, static_cast<std::uint32_t>(collected_.size()), policy_->size() + ready_count(), clock_.now());
  }
  unname_collected();
  tell_evicted();
  call_when_low();
  if (!gathered) {
    ++stats_.allocation_failures;
    for (const BlockId block_id : run.block_ids()) {
      make_free(block_id);
    }
    end_run(run);
    return Unexpected(gathered.error());
  }
  stats_.allocated += count;
  return run;
}

void SlotTable::call_when_low() {
  if (free_ + unreclaimed_ + ready_count() < low_water_ && policy_->size() > 0 && options_.when_low) {
    const CallbackScope scope(mutex_, "when_low of a pool");
    options_.when_low();
  }
}

// Fills the run with private blocks; those that were evicted for it are in collected_, still under their names.
Status SlotTable::gather(Run& run, std::uint32_t count, TenantId tenant) {
  TenantLedger::TenantSet barren;  // the policy gives up none of theirs: others' hang below, or may_evict refused
  Status status;
  while (run.size() < count) {
    const TenantLedger::Next next = tenants_.next_source(tenant, free_, barren);
    std::span<BlockId> taken(run.storage() + run.size(), std::min(next.count, count - run.size()));
    if (next.source == TenantLedger::Source::kFree) {
      for (BlockId& block_id : taken) {
        block_id = take_free();
      }
    } else if (next.source == TenantLedger::Source::kEvict) {
      taken = taken.first(give_up(next.victim, taken));
      if (taken.empty()) {
        barren.set(index_of(next.victim));
        continue;
      }
      barren.reset();  // what was below others' blocks may be a leaf now
      tenants_.remove_inactive(next.victim, static_cast<std::uint32_t>(taken.size()));
      tenants_.discharge(next.victim, static_cast<std::uint32_t>(taken.size()));
      collected_.insert(collected_.end(), taken.begin(), taken.end());
      note_evicted(taken, next.victim);
    } else {
      // Nobody who is to give can: what is in their way goes, whosever it is.
      const BlockId block_id = give_up_any();
      if (block_id == kNoBlock) {
        status =
            fail(ErrorCode::kExhausted, str_cat(count, " blocks asked for, but may_evict refused all but ", run.size(),
                                                ", or they are being copied; retry when there are more"));
        break;
      }
      barren.reset();
      tenants_.remove_inactive(tenant_of(at(block_id)), 1);
      note_evicted({&block_id, 1}, tenant_of(at(block_id)));
      collected_.push_back(block_id);
      make_free(block_id);
      continue;
    }
    tenants_.charge(tenant, static_cast<std::uint32_t>(taken.size()));
    run.resize(run.size() + static_cast<std::uint32_t>(taken.size()));
  }
  for (const BlockId block_id : run.block_ids()) {
    Record& record = at(block_id);
    record.state = State::kPrivate;
    record.references = stamp_;
    record.eviction_class = class_of(tenant, 0);
  }
  return status;
}

// Before their blocks are another tenant's.
void SlotTable::note_evicted(std::span<const BlockId> block_ids, TenantId tenant) {
  if (hints_) {
    for (const BlockId block_id : block_ids) {
      hints_->gone(block_id, tenant, at(block_id).key);
    }
  }
}

void SlotTable::unname_collected() {
  constexpr std::size_t kChunk = 16;
  KeyIndex::Place places[kChunk];
  for (std::size_t begin = 0; begin < collected_.size(); begin += kChunk) {
    const std::span block_ids = std::span(collected_).subspan(begin, std::min(kChunk, collected_.size() - begin));
    for (std::size_t i = 0; i < block_ids.size(); ++i) {
      places[i] = index_.place_of(at(block_ids[i]).key);
      index_.prefetch(places[i]);
    }
    for (std::size_t i = 0; i < block_ids.size(); ++i) {
      index_.erase(block_ids[i], places[i]);
    }
  }
  policy_->forget(collected_);
  registered_ -= static_cast<std::uint32_t>(collected_.size());
  for (const BlockId block_id : collected_) {
    if (retention_clock_) {
      retention_clock_->stop(block_id);
    }
    if (ready_) {
      leave_ready(block_id);
    }
    if (watched_) {
      removed_keys_.push_back(at(block_id).key);
    }
  }
  collected_.clear();
}

// The block's key can no longer be found. Requires: the policy does not hold it.
void SlotTable::unname(BlockId block_id, KeyIndex::Place place) {
  note_evicted({&block_id, 1}, tenant_of(at(block_id)));
  index_.erase(block_id, place);
  policy_->forget(block_id);
  if (ready_) {
    leave_ready(block_id);
  }
  --registered_;
  if (watched_) {
    removed_keys_.push_back(at(block_id).key);
  }
}

// Makes an inactive block free.
void SlotTable::drop_inactive(BlockId block_id) {
  make_room_for_removal();
  activate({&block_id, 1});
  unname(block_id, index_.place_of(at(block_id).key));
  make_free(block_id);
}

void SlotTable::expire_due() {
  if (!retention_clock_) {
    return;
  }
  using What = RetentionClock::What;
  const TimePoint now = clock_.now();
  for (auto due = retention_clock_->pop_due(now); due; due = retention_clock_->pop_due(now)) {
    Record& record = at(due->block_id);
    if (due->what == What::kExpired) {
      drop_inactive(due->block_id);
      ++stats_.expired;
    } else if (due->what == What::kPriorityOver) {
      const HintLevel level = index_of(record.eviction_class) & ((1U << level_bits_) - 1);
      reclass(due->block_id, class_of(tenant_of(record), Retention::kDefaultPriority, level));
    } else {
      set_level(due->block_id, now);
    }
  }
}

// Where an inactive block stands by what was hinted of it.
void SlotTable::set_level(BlockId block_id, TimePoint now) {
  Record& record = at(block_id);
  const HintBook::Rank rank = hints_->rank(block_id, tenant_of(record), now);
  const EvictionClass ranked = class_of(tenant_of(record), priority_of(record), rank.level);
  if (ranked != record.eviction_class) {
    reclass(block_id, ranked);
  }
  retention_clock_->review_at(block_id, rank.review);
}

// Of an inactive block.
void SlotTable::reclass(BlockId block_id, EvictionClass to) {
  if (ready_ && ready_->contains(block_id)) {
    at(block_id).eviction_class = to;
  } else {
    policy_->reclass(block_id, at(block_id).eviction_class, to);
  }
}

// These were found in use, and are used once more.
void SlotTable::note_used(std::span<const BlockId> block_ids) {
  policy_->touch(block_ids);
  if (ready_ && ready_->parked() > 0) {
    for (const BlockId block_id : block_ids) {
      ready_->unpark(block_id);
    }
  }
}

void SlotTable::activate(std::span<const BlockId> block_ids) {
  if (ready_count() > 0) {
    take_out(block_ids);
  } else {
    policy_->remove(block_ids);
  }
  wake(block_ids);
}

void SlotTable::wake(std::span<const BlockId> block_ids) {
  borrowed_inactive_ -= count_borrowed(block_ids);
  if (tenants_.tenant_count() == 1) {
    tenants_.remove_inactive(kDefaultTenant, static_cast<std::uint32_t>(block_ids.size()));
  } else {
    for (const BlockId block_id : block_ids) {
      tenants_.remove_inactive(tenant_of(at(block_id)), 1);
    }
  }
  if (retention_clock_) {
    for (const BlockId block_id : block_ids) {
      retention_clock_->stop(block_id);
    }
  }
}

void SlotTable::deactivate(std::span<const BlockId> block_ids) {
  if (ready_ && ready_->parked() > 0) {
    put_back(block_ids);
    return;
  }
  lay_down(block_ids);
  policy_->insert(block_ids);
}

void SlotTable::lay_down(std::span<const BlockId> block_ids) {
  borrowed_inactive_ += count_borrowed(block_ids);
  if (retention_clock_) {
    const TimePoint now = clock_.now();
    for (const BlockId block_id : block_ids) {
      retention_clock_->start(block_id, now);
      if (hints_) {
        Record& record = at(block_id);
        hints_->released(block_id, now);
        const HintBook::Rank rank = hints_->rank(block_id, tenant_of(record), now);
        record.eviction_class = class_of(tenant_of(record), priority_of(record), rank.level);
        retention_clock_->review_at(block_id, rank.review);
      }
    }
  }
  if (tenants_.tenant_count() == 1) {
    tenants_.add_inactive(kDefaultTenant, static_cast<std::uint32_t>(block_ids.size()));
  } else {
    for (const BlockId block_id : block_ids) {
      tenants_.add_inactive(tenant_of(at(block_id)), 1);
    }
  }
}

void SlotTable::release_private(Run& run) {
  const MutexLock lock(mutex_);
  const std::span<const BlockId> block_ids = run.block_ids();
  for (std::size_t i = block_ids.size(); i-- > 0;) {
    make_free(block_ids[i]);
  }
  end_run(run);
}

void SlotTable::release(Run& run) {
  const MutexLock lock(mutex_);
  release_references(run.block_ids());
  end_run(run);
}

void SlotTable::release_tail(Run& run, std::uint32_t count) {
  const MutexLock lock(mutex_);
  release_references(run.block_ids().subspan(count));
  run.resize(count);
  if (count == 0) {
    end_run(run);
  }
}

void SlotTable::release_pinned(Run& run) {
  const MutexLock lock(mutex_);
  pinned_ -= run.size();
  release_references(run.block_ids());
  end_run(run);
}

BlockId SlotTable::let_go(BlockId block_id) {
  if (--at(block_id).references > 0) {
    return kNoBlock;
  }
  if (at(block_id).state == State::kDuplicate) {
    const BlockId named = at(block_id).link;
    make_free(block_id);
    if (--at(named).references > 0) {
      return kNoBlock;
    }
    block_id = named;
  }
  if (at(block_id).state == State::kDiscarded) {
    make_free(block_id);
    return kNoBlock;
  }
  if (at(block_id).mark != mark_) {
    let_go_for_good(block_id);
    return kNoBlock;
  }
  return block_id;
}

// The block is not to be found again: it is reset on release, or was registered before the latest fence.
void SlotTable::let_go_for_good(BlockId block_id) {
  if (is_current(at(block_id))) {
    unname(block_id, index_.place_of(at(block_id).key));
    ++stats_.reset;
  }
  make_free(block_id);
}

// Leaf first: what stands last in a run goes first, so that it is also evicted first.
void SlotTable::release_references(std::span<const BlockId> block_ids) {
  constexpr std::size_t kAhead = 16;
  BlockId* const idle = scratch(block_ids.size());
  std::size_t idle_count = 0;
  for (std::size_t i = block_ids.size(); i-- > 0;) {
    if (i >= kAhead) {
      __builtin_prefetch(&at(block_ids[i - kAhead]), 1);
    }
    if (const BlockId idle_now = let_go(block_ids[i]); idle_now != kNoBlock) {
      idle[idle_count++] = idle_now;
    }
  }
  if (idle_count > 0) {
    deactivate({idle, idle_count});
  }
  tell_removed();
}

void SlotTable::quarantine(const Run& run) {
  const MutexLock lock(mutex_);
  for (const BlockId block_id : run.block_ids()) {
    at(block_id).state = State::kQuarantined;
  }
  quarantined_ += run.size();
}

void SlotTable::release_quarantined(Run& run) {
  const MutexLock lock(mutex_);
  quarantined_ -= run.size();
  for (const BlockId block_id : run.block_ids()) {
    make_free(block_id);
  }
  end_run(run);
}

void SlotTable::abandon_quarantined(Run& run) {
  const MutexLock lock(mutex_);
  stats_.abandoned_in_quarantine += run.size();
  end_run(run);
}

void SlotTable::tell_removed() {
  if (removed_keys_.empty()) {
    return;
  }
  const CallbackScope scope(mutex_, "an observer of a pool");
  for (PoolObserver* observer : options_.observers) {
    observer->on_removed(options_.tier, removed_keys_);
  }
  removed_keys_.clear();
}

void SlotTable::tell_evicted() {
  if (removed_keys_.empty()) {
    return;
  }
  for (PoolObserver* observer : options_.observers) {
    observer->on_evicted(options_.tier, removed_keys_);
  }
  removed_keys_.clear();
}

}  // namespace cairn
