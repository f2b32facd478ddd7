// SlotTable: finding blocks, sharing them, and looking at them.
#include <algorithm>
#include <utility>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/pool/slot_table.h"

namespace cairn {

namespace {

// A pool this small lives in a core's own cache: fetching ahead would cost more than it brings.
constexpr std::uint32_t kFitsInCache = 4096;

}  // namespace

// Finds where to look for the first keys, before the lock is taken: threads do this side by side, and what they fetch is
// on its way when they have the lock.
SlotTable::Located::Located(const SlotTable& table, std::span<const BlockKey> keys) { locate(table, keys); }

void SlotTable::Located::locate(const SlotTable& table, std::span<const BlockKey> keys) {
  const bool fetch = table.options_.capacity > kFitsInCache;
  const std::size_t count = std::min(keys.size(), kGroup);
  for (std::size_t i = 0; i < count; ++i) {
    places_[i] = table.index_.place_of(keys[i]);
    if (fetch) {
      table.index_.prefetch(places_[i]);
    }
  }
}

// In a large pool the blocks that the index points at are fetched some steps ahead of the comparison of keys.
template <typename Visit>
[[gnu::always_inline]] inline void SlotTable::find_each(std::span<const BlockKey> keys, Located& located, Visit visit) {
  constexpr std::size_t kAhead = 16;
  const bool fetch = options_.capacity > kFitsInCache;
  for (std::size_t begin = 0; begin < keys.size(); begin += Located::kGroup) {
    const std::span<const BlockKey> group = keys.subspan(begin, std::min(Located::kGroup, keys.size() - begin));
    if (begin > 0) {
      located.locate(*this, group);
    }
    BlockId guesses[Located::kGroup + kAhead];
    const auto guess = [&](std::size_t i) {
      guesses[i] = index_.guess(located[i]);
      if (guesses[i] != kNoBlock) {
        __builtin_prefetch(&at(guesses[i]), 1);
      }
    };
    for (std::size_t i = 0; fetch && i < std::min(kAhead, group.size()); ++i) {
      guess(i);
    }
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (!fetch) {
        guesses[i] = index_.guess(located[i]);
      } else if (i + kAhead < group.size()) {
        guess(i + kAhead);
      }
      BlockId block_id = guesses[i];
      if (block_id == kNoBlock || at(block_id).key != group[i]) {
        block_id = index_.find(group[i], located[i]);
      }
      if (!visit(begin + i, block_id)) {
        return;
      }
    }
  }
}

SlotTable::Run SlotTable::match_prefix(std::span<const BlockKey> keys) {
  Located located(*this, keys);
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  Run run = new_run(static_cast<std::uint32_t>(keys.size()));
  BlockId* const block_ids = run.storage();
  std::size_t count = 0;
  Found found(scratch(keys.size()), keys.size());
  find_each(keys, located, [&](std::size_t /*i*/, BlockId block_id) {
    if (block_id == kNoBlock) {
      return false;
    }
    found.add(block_id, at(block_id).references++ == 0);
    block_ids[count++] = block_id;
    return true;
  });
  run.resize(static_cast<std::uint32_t>(count));
  stats_.lookups += keys.size();
  finish_match(keys.first(count), found);
  if (count == 0) {
    end_run(run);
  }
  return run;
}

SlotTable::Run SlotTable::match_scattered(std::span<const BlockKey> keys,
                                          std::vector<std::optional<std::uint32_t>>* position) {
  if (position != nullptr) {
    position->assign(keys.size(), std::nullopt);
  }
  Located located(*this, keys);
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  Run run = new_run(static_cast<std::uint32_t>(keys.size()));
  Found found(scratch(keys.size()), keys.size());
  matched_keys_.clear();
  find_each(keys, located, [&](std::size_t i, BlockId block_id) CAIRN_REQUIRES(mutex_) {
    if (block_id != kNoBlock) {
      found.add(block_id, at(block_id).references++ == 0);
      matched_keys_.push_back(keys[i]);
      if (position != nullptr) {
        (*position)[i] = run.size();
      }
      run.storage()[run.size()] = block_id;
      run.resize(run.size() + 1);
    }
    return true;
  });
  stats_.lookups += keys.size();
  finish_match(matched_keys_, found);
  if (run.size() == 0) {
    end_run(run);
  }
  return run;
}

// All of them or none: where one is missing, the others are left as they are.
std::optional<SlotTable::Run> SlotTable::match_all(std::span<const BlockKey> keys) {
  Located located(*this, keys);
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  Run run = new_run(static_cast<std::uint32_t>(keys.size()));
  find_each(keys, located, [&](std::size_t i, BlockId block_id) {
    if (block_id == kNoBlock) {
      return false;
    }
    run.storage()[i] = block_id;
    run.resize(static_cast<std::uint32_t>(i) + 1);
    return true;
  });
  stats_.lookups += keys.size();
  if (run.size() < keys.size()) {
    end_run(run);
    return std::nullopt;
  }
  Found found(scratch(run.size()), run.size());
  for (const BlockId block_id : run.block_ids()) {
    found.add(block_id, at(block_id).references++ == 0);
  }
  finish_match(keys, found);
  return run;
}

// What was found: those that were inactive are in use from now on, the others are used once more.
void SlotTable::finish_match(std::span<const BlockKey> keys, const Found& found) {
  if (hints_ && !keys.empty()) {
    hints_->observe(static_cast<std::uint32_t>(found.asleep().size()), 0, policy_->size() + ready_count(),
                    clock_.now());
    for (const std::span<const BlockId> block_ids : {found.asleep(), found.awake()}) {
      for (const BlockId block_id : block_ids) {
        hints_->used(block_id, tenant_of(at(block_id)), at(block_id).key);
      }
    }
  }
  if (!found.asleep().empty()) {
    activate(found.asleep());
  }
  if (!found.awake().empty()) {
    note_used(found.awake());
  }
  stats_.hits += keys.size();
  if (watched_ && !keys.empty()) {
    const CallbackScope scope(mutex_, "an observer of a pool");
    for (PoolObserver* observer : options_.observers) {
      observer->on_matched(options_.tier, keys);
    }
  }
}

// Unlike a match, this is no use of the blocks.
SlotTable::Run SlotTable::hold(std::span<const BlockKey> keys) {
  Located located(*this, keys);
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  Run run = new_run(static_cast<std::uint32_t>(keys.size()));
  BlockId* const asleep = scratch(2 * keys.size());
  BlockId* const were_ready = asleep + keys.size();
  std::size_t asleep_count = 0;
  std::size_t were_ready_count = 0;
  find_each(keys, located, [&](std::size_t /*i*/, BlockId block_id) CAIRN_REQUIRES(mutex_) {
    if (block_id != kNoBlock) {
      if (at(block_id).references++ == 0) {
        asleep[asleep_count++] = block_id;
        if (ready_ && ready_->contains(block_id)) {
          were_ready[were_ready_count++] = block_id;
        }
      }
      run.storage()[run.size()] = block_id;
      run.resize(run.size() + 1);
    }
    return true;
  });
  activate({asleep, asleep_count});
  for (const BlockId block_id : std::span(were_ready, were_ready_count)) {
    ready_->park(block_id);
  }
  pinned_ += run.size();
  if (run.size() == 0) {
    end_run(run);
  }
  return run;
}

std::uint32_t SlotTable::count_prefix(std::span<const BlockKey> keys) {
  Located located(*this, keys);
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  std::uint32_t count = 0;
  find_each(keys, located, [&](std::size_t /*i*/, BlockId block_id) {
    count += block_id != kNoBlock ? 1 : 0;
    return block_id != kNoBlock;
  });
  return count;
}

ResetOutcome SlotTable::reset(std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  expire_due();
  ResetOutcome outcome;
  for (const BlockKey& key : keys) {
    const BlockId block_id = index_.find(key, index_.place_of(key));
    if (block_id == kNoBlock) {
      ++outcome.not_found;
    } else if (at(block_id).references > 0) {
      ++outcome.in_use;
    } else {
      drop_inactive(block_id);
      ++outcome.reset;
    }
  }
  stats_.reset += outcome.reset;
  tell_removed();
  return outcome;
}

std::uint32_t SlotTable::reset_inactive() {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  collected_.reserve(policy_->size() + ready_count());
  if (watched_) {
    removed_keys_.reserve(policy_->size() + ready_count());
  }
  for (std::uint32_t i = 0; ready_count() > 0 && i < tenants_.tenant_count(); ++i) {
    const TenantId tenant{static_cast<std::uint8_t>(i)};
    for (BlockId block_id = ready_->front(tenant); block_id != kNoBlock; block_id = ready_->front(tenant)) {
      unready(block_id);
      collected_.push_back(block_id);
    }
  }
  const ClassRange all = all_classes();
  for (BlockId block_id = policy_->evict(all, {}); block_id != kNoBlock; block_id = policy_->evict(all, {})) {
    collected_.push_back(block_id);
  }
  const auto count = static_cast<std::uint32_t>(collected_.size());
  borrowed_inactive_ -= count_borrowed(collected_);
  for (const BlockId block_id : collected_) {
    tenants_.remove_inactive(tenant_of(at(block_id)), 1);
    note_evicted({&block_id, 1}, tenant_of(at(block_id)));
    make_free(block_id);
  }
  unname_collected();
  stats_.reset += count;
  if (registered_ == 0 && watched_ && count > 0) {
    removed_keys_.clear();
    const CallbackScope scope(mutex_, "an observer of a pool");
    for (PoolObserver* observer : options_.observers) {
      observer->on_cleared(options_.tier);
    }
  }
  tell_removed();
  return count;
}

std::uint32_t SlotTable::list_resident(std::uint32_t first, std::uint32_t count, std::vector<ResidentBlock>& out) {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  const std::uint32_t end =
      options_.capacity - std::min(first, options_.capacity) < count ? options_.capacity : first + count;
  for (std::uint32_t i = first; i < std::min(end, never_used_); ++i) {
    if (records_[i].state == State::kRegistered && is_current(records_[i])) {
      out.push_back(resident(BlockId{i}));
    }
  }
  return end;
}

std::uint32_t SlotTable::list_blocks(std::uint32_t first, std::uint32_t count, std::size_t most,
                                     std::vector<ListedBlock>& out) {
  const MutexLock lock(mutex_);
  const std::uint32_t end =
      options_.capacity - std::min(first, options_.capacity) < count ? options_.capacity : first + count;
  for (std::uint32_t i = first; i < std::min(end, never_used_); ++i) {
    if (records_[i].state == State::kRegistered && is_current(records_[i])) {
      if (most-- == 0) {
        return i;
      }
      out.push_back({.block_id = BlockId{i}, .facts = facts_of(BlockId{i})});
    }
  }
  // Nothing was ever in the blocks that were never used.
  return end >= never_used_ ? options_.capacity : end;
}

SlotTable::Run SlotTable::share(const Run& run, std::uint32_t count) {
  const MutexLock lock(mutex_);
  return share_locked(run, count);
}

SlotTable::Run SlotTable::share_pinned(const Run& run) {
  const MutexLock lock(mutex_);
  pinned_ += run.size();
  return share_locked(run, run.size());
}

SlotTable::Run SlotTable::share_locked(const Run& run, std::uint32_t count) {
  Run shared = new_run(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const BlockId block_id = run.block_ids()[i];
    ++at(block_id).references;
    shared.storage()[i] = block_id;
  }
  shared.resize(count);
  return shared;
}

SlotTable::Run SlotTable::split_front(Run& run, std::uint32_t count) {
  if (count == run.size()) {
    return std::move(run);  // which leaves it empty, without a buffer
  }
  const MutexLock lock(mutex_);
  Run front = new_run(count);
  const std::span<BlockId> block_ids = run.block_ids();
  std::copy_n(block_ids.begin(), count, front.storage());
  front.resize(count);
  std::copy(block_ids.begin() + count, block_ids.end(), block_ids.begin());
  run.resize(run.size() - count);
  return front;
}

void SlotTable::append(Run& run, Run& other) {
  const MutexLock lock(mutex_);
  const std::uint32_t size = run.size();
  if (run.capacity() < size + other.size()) {
    Run larger = new_run(size + other.size());
    std::copy(run.block_ids().begin(), run.block_ids().end(), larger.storage());
    end_run(run);
    run = std::move(larger);
  }
  std::copy(other.block_ids().begin(), other.block_ids().end(), run.storage() + size);
  run.resize(size + other.size());
  end_run(other);
}

PoolCounts SlotTable::counts() {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  PoolCounts counts;
  counts.total = options_.capacity;
  counts.free = free_ + unreclaimed_;
  counts.ready = ready_count();
  counts.inactive = policy_->size() + counts.ready;
  counts.quarantined = quarantined_;
  counts.active = counts.total - counts.free - counts.inactive - counts.quarantined;
  counts.registered = registered_;
  counts.pinned = pinned_;
  counts.borrowed = borrowed_inactive_;
  return counts;
}

PoolStats SlotTable::stats() {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  return stats_;
}

Result<TenantUsage> SlotTable::usage(TenantId tenant) {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  return tenants_.usage(tenant);
}

std::size_t SlotTable::bytes() {
  const MutexLock lock(mutex_);
  return sizeof(*this) + records_.bytes() + tokens_hashes_.bytes() + notes_.bytes() + index_.bytes() +
         policy_->bytes() + (ready_ ? ready_->bytes() : 0) + (retention_clock_ ? retention_clock_->bytes() : 0) +
         (hints_ ? hints_->bytes() : 0) + buffers_.bytes() +
         (scratch_.capacity() + collected_.capacity() + ordinary_.capacity()) * sizeof(BlockId) +
         (removed_keys_.capacity() + matched_keys_.capacity() + sorted_keys_.capacity()) * sizeof(BlockKey) +
         new_blocks_.capacity() * sizeof(ResidentBlock);
}

void SlotTable::check_invariants() {
  const MutexLock lock(mutex_);
  std::uint32_t free = options_.capacity - never_used_;
  for (BlockId block_id = first_free_; block_id != kNoBlock; block_id = at(block_id).link) {
    CAIRN_CHECK(at(block_id).state == State::kFree, "I1: the free list holds free blocks only");
    CAIRN_CHECK(++free <= options_.capacity, "I1: the free list has no cycle");
  }
  CAIRN_CHECK(free == free_, "I1: every free block is in the free list");
  std::uint32_t in_state[kStates] = {};
  std::uint32_t inactive = 0;
  std::uint32_t borrowed = 0;
  std::uint32_t borrowed_inactive = 0;
  std::uint32_t set_aside = 0;
  std::vector<std::uint32_t> held_by_duplicates(options_.capacity);
  std::vector<std::uint32_t> ready_below(options_.capacity);
  std::vector<std::uint32_t> charged(tenants_.tenant_count());
  std::uint32_t unreclaimed = 0;
  for (std::uint32_t i = 0; i < never_used_; ++i) {
    const Record& record = records_[i];
    charged[index_of(tenant_of(record))] += record.state != State::kFree ? 1 : 0;
    borrowed += record.is_borrowed ? 1 : 0;
    set_aside += record.is_set_aside ? 1 : 0;
    CAIRN_CHECK(!record.is_borrowed || record.state != State::kFree, "I9: what a copy reads is not free");
    CAIRN_CHECK(!record.is_set_aside || (record.is_borrowed && record.references > 0),
                "I9: what was set aside is borrowed and held");
    if (record.state == State::kRegistered && !is_current(record)) {
      CAIRN_CHECK(i >= swept_ && i < sweep_end_, "I8: the sweep leaves no block of before the fence behind");
      CAIRN_CHECK(index_.find(record.key, index_.place_of(record.key)) != BlockId{i} && !policy_->contains(BlockId{i}),
                  "I8: a block of before the fence is not found, and not evicted");
      unreclaimed += record.references == 0 ? 1 : 0;
      continue;
    }
    ++in_state[static_cast<std::size_t>(record.state)];
    const bool evictable = record.state == State::kRegistered && record.references == 0;
    inactive += evictable ? 1 : 0;
    borrowed_inactive += record.is_borrowed && evictable ? 1 : 0;
    const bool is_ready = ready_ && ready_->contains(BlockId{i});
    CAIRN_CHECK(policy_->contains(BlockId{i}) == (evictable && !is_ready) && (evictable || !is_ready),
                "I3: the policy or the ready queue holds exactly the unreferenced blocks");
    if (is_ready && record.link != kNoBlock) {
      ++ready_below[index_of(record.link)];
    }
    CAIRN_CHECK(
        !ready_ || !ready_->is_parked(BlockId{i}) || (record.state == State::kRegistered && record.references > 0),
        "I3: a block that is to be ready again is in use");
    if (record.state == State::kRegistered) {
      CAIRN_CHECK(index_.find(record.key, index_.place_of(record.key)) == BlockId{i},
                  "I2: every registered block is found under its key");
    } else if (record.state == State::kDuplicate) {
      CAIRN_CHECK(record.references > 0, "I4: a duplicate nobody holds is free");
      const State of_link = at(record.link).state;
      CAIRN_CHECK((of_link == State::kRegistered || of_link == State::kDiscarded) && at(record.link).key == record.key,
                  "I4: a duplicate is of a block with its key");
      ++held_by_duplicates[index_of(record.link)];
    } else if (record.state == State::kDiscarded) {
      CAIRN_CHECK(record.references > 0, "I7: a discarded block nobody holds is free");
      CAIRN_CHECK(index_.find(record.key, index_.place_of(record.key)) != BlockId{i},
                  "I7: a discarded block is not found");
    }
  }
  for (std::uint32_t i = 0; i < never_used_; ++i) {
    CAIRN_CHECK(held_by_duplicates[i] == 0 || records_[i].references >= held_by_duplicates[i],
                "I4: each duplicate holds a reference");
    CAIRN_CHECK(!ready_ || ready_->below(BlockId{i}) == ready_below[i], "I3: ready blocks are known to their parents");
  }
  CAIRN_CHECK(in_state[static_cast<std::size_t>(State::kRegistered)] == registered_, "I2: registered blocks add up");
  CAIRN_CHECK(unreclaimed == unreclaimed_, "I8: blocks that are to be reclaimed add up");
  CAIRN_CHECK(in_state[static_cast<std::size_t>(State::kQuarantined)] == quarantined_, "I5: quarantined blocks add up");
  CAIRN_CHECK(inactive == policy_->size() + ready_count(), "I3: inactive blocks add up");
  CAIRN_CHECK(borrowed == borrowed_ && borrowed_inactive == borrowed_inactive_ && set_aside == set_aside_,
              "I9: borrowed blocks add up");
  std::uint32_t unmet = 0;
  for (std::uint32_t i = 0; i < charged.size(); ++i) {
    const TenantId tenant{static_cast<std::uint8_t>(i)};
    const std::uint32_t used = tenants_.usage(tenant)->used;
    CAIRN_CHECK(used == charged[i], "I5: each tenant is charged for its blocks");
    const std::uint32_t reserved = options_.tenants.empty() ? 0 : options_.tenants[i].reserved;
    unmet += used < reserved ? reserved - used : 0;
  }
  CAIRN_CHECK(free_ >= unmet, "I6: free blocks cover the unused reservations");
}

}  // namespace cairn
