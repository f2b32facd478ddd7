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
  if (options.capacity >= index_of(kNoSlot)) {
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
  Result<PageArray<Slot>> slots = PageArray<Slot>::create(options.capacity);
  if (!slots) {
    return Unexpected(std::move(slots).error());
  }
  Result<PageArray<BlockHash>> tokens_hashes = PageArray<BlockHash>::create(options.capacity);
  if (!tokens_hashes) {
    return Unexpected(std::move(tokens_hashes).error());
  }
  Result<KeyIndex> index = KeyIndex::create(options.capacity, Column<BlockKey>(&slots->data()->key, sizeof(Slot)));
  if (!index) {
    return Unexpected(std::move(index).error());
  }
  std::unique_ptr<SlotTable> table(
      new SlotTable(options, *std::move(slots), *std::move(tokens_hashes), *std::move(index), *std::move(tenants)));
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
  Result<std::unique_ptr<EvictionPolicy>> policy =
      make_policy(options_.policy, PolicyView{
                                       .capacity = options_.capacity,
                                       .class_count = class_count(options_, tenants),
                                       .keys = Column<BlockKey>(&slots_.data()->key, sizeof(Slot)),
                                       .classes = Column<EvictionClass>(&slots_.data()->eviction_class, sizeof(Slot)),
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

SlotTable::SlotTable(const BlockPoolOptions& options, PageArray<Slot> slots, PageArray<BlockHash> tokens_hashes,
                     KeyIndex index, TenantLedger tenants)
    : options_(options),
      clock_(options.clock != nullptr ? *options.clock : steady_clock()),
      watched_(!options.observers.empty()),
      level_bits_(level_bits(options)),
      slots_(std::move(slots)),
      tokens_hashes_(std::move(tokens_hashes)),
      index_(std::move(index)),
      tenants_(std::move(tenants)),
      buffers_(options.capacity),
      free_(options.capacity),
      low_water_(options.low_water) {
  if (options_.may_evict) {
    veto_ = [this](SlotId slot) {
      const CallbackScope scope(mutex_, "may_evict of a pool");
      return !options_.may_evict(slot, at(slot).key);
    };
  }
  veto_beside_ready_ = [this](SlotId slot)
                           CAIRN_REQUIRES(mutex_) { return ready_->below(slot) > 0 || (veto_ && veto_(slot)); };
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

// Room for this many slots until the next call; kept between calls so that nothing is allocated in the long run.
SlotId* SlotTable::scratch(std::size_t count) {
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
  return {this, buffer.slots, 0, buffer.capacity};
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

SlotId SlotTable::take_free() {
  --free_;
  if (first_free_ == kNoSlot) {
    return SlotId{never_used_++};
  }
  return std::exchange(first_free_, at(first_free_).link);
}

void SlotTable::make_free(SlotId slot) {
  Slot& record = at(slot);
  if (record.is_borrowed) [[unlikely]] {
    record.state = State::kQuarantined;  // until it is given back
    ++quarantined_;
    return;
  }
  tenants_.discharge(tenant_of(record), 1);
  record.state = State::kFree;
  record.link = std::exchange(first_free_, slot);
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
    for (const SlotId slot : collected_) {
      evicted->push_back(at(slot).key);
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
    for (const SlotId slot : run.slots()) {
      make_free(slot);
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

// Fills the run with private slots; those that were evicted for it are in collected_, still under their names.
Status SlotTable::gather(Run& run, std::uint32_t count, TenantId tenant) {
  TenantLedger::TenantSet barren;  // the policy gives up none of theirs: others' hang below, or may_evict refused
  Status status;
  while (run.size() < count) {
    const TenantLedger::Next next = tenants_.next_source(tenant, free_, barren);
    std::span<SlotId> taken(run.storage() + run.size(), std::min(next.count, count - run.size()));
    if (next.source == TenantLedger::Source::kFree) {
      for (SlotId& slot : taken) {
        slot = take_free();
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
      const SlotId slot = give_up_any();
      if (slot == kNoSlot) {
        status =
            fail(ErrorCode::kExhausted, str_cat(count, " blocks asked for, but may_evict refused all but ", run.size(),
                                                ", or they are being copied; retry when there are more"));
        break;
      }
      barren.reset();
      tenants_.remove_inactive(tenant_of(at(slot)), 1);
      note_evicted({&slot, 1}, tenant_of(at(slot)));
      collected_.push_back(slot);
      make_free(slot);
      continue;
    }
    tenants_.charge(tenant, static_cast<std::uint32_t>(taken.size()));
    run.resize(run.size() + static_cast<std::uint32_t>(taken.size()));
  }
  for (const SlotId slot : run.slots()) {
    Slot& record = at(slot);
    record.state = State::kPrivate;
    record.references = stamp_;
    record.eviction_class = class_of(tenant, 0);
  }
  return status;
}

// Before their slots are another tenant's.
void SlotTable::note_evicted(std::span<const SlotId> slots, TenantId tenant) {
  if (hints_) {
    for (const SlotId slot : slots) {
      hints_->gone(slot, tenant, at(slot).key);
    }
  }
}

void SlotTable::unname_collected() {
  constexpr std::size_t kChunk = 16;
  KeyIndex::Place places[kChunk];
  for (std::size_t begin = 0; begin < collected_.size(); begin += kChunk) {
    const std::span slots = std::span(collected_).subspan(begin, std::min(kChunk, collected_.size() - begin));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      places[i] = index_.place_of(at(slots[i]).key);
      index_.prefetch(places[i]);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      index_.erase(slots[i], places[i]);
    }
  }
  policy_->forget(collected_);
  registered_ -= static_cast<std::uint32_t>(collected_.size());
  for (const SlotId slot : collected_) {
    if (retention_clock_) {
      retention_clock_->stop(slot);
    }
    if (ready_) {
      leave_ready(slot);
    }
    if (watched_) {
      removed_keys_.push_back(at(slot).key);
    }
  }
  collected_.clear();
}

// The slot's key can no longer be found. Requires: the policy does not hold it.
void SlotTable::unname(SlotId slot, KeyIndex::Place place) {
  note_evicted({&slot, 1}, tenant_of(at(slot)));
  index_.erase(slot, place);
  policy_->forget(slot);
  if (ready_) {
    leave_ready(slot);
  }
  --registered_;
  if (watched_) {
    removed_keys_.push_back(at(slot).key);
  }
}

// Makes an inactive block free.
void SlotTable::drop_inactive(SlotId slot) {
  make_room_for_removal();
  activate({&slot, 1});
  unname(slot, index_.place_of(at(slot).key));
  make_free(slot);
}

void SlotTable::expire_due() {
  if (!retention_clock_) {
    return;
  }
  using What = RetentionClock::What;
  const TimePoint now = clock_.now();
  for (auto due = retention_clock_->pop_due(now); due; due = retention_clock_->pop_due(now)) {
    Slot& record = at(due->slot);
    if (due->what == What::kExpired) {
      drop_inactive(due->slot);
      ++stats_.expired;
    } else if (due->what == What::kPriorityOver) {
      const HintLevel level = index_of(record.eviction_class) & ((1U << level_bits_) - 1);
      reclass(due->slot, class_of(tenant_of(record), Retention::kDefaultPriority, level));
    } else {
      set_level(due->slot, now);
    }
  }
}

// Where an inactive block stands by what was hinted of it.
void SlotTable::set_level(SlotId slot, TimePoint now) {
  Slot& record = at(slot);
  const HintBook::Rank rank = hints_->rank(slot, tenant_of(record), now);
  const EvictionClass ranked = class_of(tenant_of(record), priority_of(record), rank.level);
  if (ranked != record.eviction_class) {
    reclass(slot, ranked);
  }
  retention_clock_->review_at(slot, rank.review);
}

// Of an inactive block.
void SlotTable::reclass(SlotId slot, EvictionClass to) {
  if (ready_ && ready_->contains(slot)) {
    at(slot).eviction_class = to;
  } else {
    policy_->reclass(slot, at(slot).eviction_class, to);
  }
}

// These were found in use, and are used once more.
void SlotTable::note_used(std::span<const SlotId> slots) {
  policy_->touch(slots);
  if (ready_ && ready_->parked() > 0) {
    for (const SlotId slot : slots) {
      ready_->unpark(slot);
    }
  }
}

void SlotTable::activate(std::span<const SlotId> slots) {
  if (ready_count() > 0) {
    take_out(slots);
  } else {
    policy_->remove(slots);
  }
  wake(slots);
}

void SlotTable::wake(std::span<const SlotId> slots) {
  borrowed_inactive_ -= count_borrowed(slots);
  if (tenants_.tenant_count() == 1) {
    tenants_.remove_inactive(kDefaultTenant, static_cast<std::uint32_t>(slots.size()));
  } else {
    for (const SlotId slot : slots) {
      tenants_.remove_inactive(tenant_of(at(slot)), 1);
    }
  }
  if (retention_clock_) {
    for (const SlotId slot : slots) {
      retention_clock_->stop(slot);
    }
  }
}

void SlotTable::deactivate(std::span<const SlotId> slots) {
  if (ready_ && ready_->parked() > 0) {
    put_back(slots);
    return;
  }
  lay_down(slots);
  policy_->insert(slots);
}

void SlotTable::lay_down(std::span<const SlotId> slots) {
  borrowed_inactive_ += count_borrowed(slots);
  if (retention_clock_) {
    const TimePoint now = clock_.now();
    for (const SlotId slot : slots) {
      retention_clock_->start(slot, now);
      if (hints_) {
        Slot& record = at(slot);
        hints_->released(slot, now);
        const HintBook::Rank rank = hints_->rank(slot, tenant_of(record), now);
        record.eviction_class = class_of(tenant_of(record), priority_of(record), rank.level);
        retention_clock_->review_at(slot, rank.review);
      }
    }
  }
  if (tenants_.tenant_count() == 1) {
    tenants_.add_inactive(kDefaultTenant, static_cast<std::uint32_t>(slots.size()));
  } else {
    for (const SlotId slot : slots) {
      tenants_.add_inactive(tenant_of(at(slot)), 1);
    }
  }
}

void SlotTable::release_private(Run& run) {
  const MutexLock lock(mutex_);
  const std::span<const SlotId> slots = run.slots();
  for (std::size_t i = slots.size(); i-- > 0;) {
    make_free(slots[i]);
  }
  end_run(run);
}

void SlotTable::release(Run& run) {
  const MutexLock lock(mutex_);
  release_references(run.slots());
  end_run(run);
}

void SlotTable::release_tail(Run& run, std::uint32_t count) {
  const MutexLock lock(mutex_);
  release_references(run.slots().subspan(count));
  run.resize(count);
  if (count == 0) {
    end_run(run);
  }
}

void SlotTable::release_pinned(Run& run) {
  const MutexLock lock(mutex_);
  pinned_ -= run.size();
  release_references(run.slots());
  end_run(run);
}

SlotId SlotTable::let_go(SlotId slot) {
  if (--at(slot).references > 0) {
    return kNoSlot;
  }
  if (at(slot).state == State::kDuplicate) {
    const SlotId named = at(slot).link;
    make_free(slot);
    if (--at(named).references > 0) {
      return kNoSlot;
    }
    slot = named;
  }
  if (at(slot).state == State::kDiscarded) {
    make_free(slot);
    return kNoSlot;
  }
  if (at(slot).mark != mark_) {
    let_go_for_good(slot);
    return kNoSlot;
  }
  return slot;
}

// The block is not to be found again: it is reset on release, or was registered before the latest fence.
void SlotTable::let_go_for_good(SlotId slot) {
  if (is_current(at(slot))) {
    unname(slot, index_.place_of(at(slot).key));
    ++stats_.reset;
  }
  make_free(slot);
}

// Leaf first: what stands last in a run goes first, so that it is also evicted first.
void SlotTable::release_references(std::span<const SlotId> slots) {
  constexpr std::size_t kAhead = 16;
  SlotId* const idle = scratch(slots.size());
  std::size_t idle_count = 0;
  for (std::size_t i = slots.size(); i-- > 0;) {
    if (i >= kAhead) {
      __builtin_prefetch(&at(slots[i - kAhead]), 1);
    }
    if (const SlotId idle_now = let_go(slots[i]); idle_now != kNoSlot) {
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
  for (const SlotId slot : run.slots()) {
    at(slot).state = State::kQuarantined;
  }
  quarantined_ += run.size();
}

void SlotTable::release_quarantined(Run& run) {
  const MutexLock lock(mutex_);
  quarantined_ -= run.size();
  for (const SlotId slot : run.slots()) {
    make_free(slot);
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
