// SlotTable: fences. What was registered before is out of reach at once, and reclaimed by and by.
#include <algorithm>
#include <utility>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/pool/slot_table.h"

namespace cairn {

namespace {

constexpr std::uint32_t kSweepStep = 256;  // blocks, while an allocation waits

}  // namespace

Result<internal::FreshTables> SlotTable::make_fresh_tables() const {
  Result<KeyIndex> index = index_.make_empty();
  if (!index) {
    return Unexpected(std::move(index).error());
  }
  Result<internal::BlockOrder> order = make_order();
  if (!order) {
    return Unexpected(std::move(order).error());
  }
  return internal::FreshTables{*std::move(index), *std::move(order)};
}

PoolFenceOutcome SlotTable::raise_fence(internal::FreshTables& fresh) {
  const MutexLock lock(mutex_);
  if (swept_ == sweep_end_) {
    fences_unswept_ = 0;
  } else if (++fences_unswept_ == kMarks - 1) {
    sweep(sweep_end_);  // the next mark is that of the oldest blocks which are not swept
    fences_unswept_ = 0;
  }
  const std::uint32_t inactive = policy_->size() + ready_count();
  const PoolFenceOutcome outcome{.dropped = inactive, .in_use = registered_ - inactive};
  for (std::uint32_t i = 0; i < tenants_.tenant_count(); ++i) {
    const TenantId tenant{static_cast<std::uint8_t>(i)};
    tenants_.remove_inactive(tenant, tenants_.usage(tenant)->inactive);
  }
  index_.swap_entries(fresh.index);
  std::swap(policy_, fresh.order.policy);
  std::swap(ready_, fresh.order.ready);
  std::swap(retention_clock_, fresh.order.retention_clock);
  std::swap(hints_, fresh.order.hints);
  registered_ = 0;
  borrowed_inactive_ = 0;
  unreclaimed_ += inactive;
  swept_ = 0;
  sweep_end_ = never_used_;
  ++fence_;
  stamp_ = 0;
  mark_ = static_cast<std::uint8_t>((fence_ % kMarks) << 1);
  stats_.reset += outcome.dropped + outcome.in_use;
  if (watched_ && outcome.dropped + outcome.in_use > 0) {
    const CallbackScope scope(mutex_, "an observer of a pool");
    for (PoolObserver* observer : options_.observers) {
      observer->on_cleared(options_.tier);
    }
  }
  return outcome;
}

void SlotTable::lower_fence() {
  const MutexLock lock(mutex_);
  stamp_ = fence_;
}

bool SlotTable::reclaim(std::uint32_t count) {
  const MutexLock lock(mutex_);
  sweep(count);
  return swept_ < sweep_end_;
}

void SlotTable::sweep(std::uint32_t count) {
  for (const std::uint32_t end = swept_ + std::min(count, sweep_end_ - swept_); swept_ < end; ++swept_) {
    Record& record = records_[swept_];
    if (record.state != State::kRegistered || is_current(record)) {
      continue;
    }
    if (record.references > 0) {
      record.state = State::kDiscarded;
    } else {
      make_free(BlockId{swept_});
      --unreclaimed_;
    }
  }
}

// Blocks of before the fence go before any that can be found.
void SlotTable::reclaim_for(std::uint32_t count, TenantId tenant) {
  std::uint64_t wanted = count;
  for (const TenantQuota& quota : options_.tenants) {
    wanted += quota.reserved;
  }
  while (unreclaimed_ > 0 && (free_ < wanted || !tenants_.can_take(tenant, count, free_))) {
    sweep(kSweepStep);
  }
}

bool SlotTable::is_current(const Run& run) {
  const MutexLock lock(mutex_);
  const std::span<const BlockId> block_ids = run.block_ids();
  return std::all_of(block_ids.begin(), block_ids.end(), [this](BlockId block_id) CAIRN_REQUIRES(mutex_) {
    const Record& record = at(named_block(block_id));
    return record.state == State::kPrivate ? record.references == fence_
                                           : record.state == State::kRegistered && is_current(record);
  });
}

}  // namespace cairn
