// SlotTable: blocks that leave ahead of their eviction, or because their bytes are wrong; and blocks that were there
// before the process was.
#include <algorithm>
#include <array>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/pool/slot_table.h"

namespace cairn {

SlotTable::Run SlotTable::claim_victims(std::uint32_t count) {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  const std::uint32_t most = ready_ ? std::min(count, policy_->size()) : 0;
  Run run = new_run(most);
  if (most == 0) {
    return run;
  }
  const std::span<BlockId> room(run.storage(), most);
  run.resize(static_cast<std::uint32_t>(tenants_.tenant_count() == 1 ? evict(all_classes(), veto_, room)
                                                                     : claim_from_tenants(room)));
  for (const BlockId block_id : run.block_ids()) {
    at(block_id).references = 1;
  }
  wake(run.block_ids());
  if (run.size() == 0) {
    end_run(run);
  }
  return run;
}

std::size_t SlotTable::claim_from_tenants(std::span<BlockId> out) {
  std::array<std::uint32_t, TenantLedger::TenantSet().size()> gone{};
  for (std::uint32_t i = 0; i < tenants_.tenant_count(); ++i) {
    gone[i] = ready_->size(TenantId{static_cast<std::uint8_t>(i)});
  }
  TenantLedger::TenantSet barren;
  std::size_t claimed = 0;
  while (claimed < out.size()) {
    const std::optional<TenantId> giver = tenants_.furthest_beyond(gone, barren);
    const BlockId block_id = evict(giver ? classes_of(*giver) : all_classes(), veto_);
    if (block_id == kNoBlock && !giver) {
      break;
    }
    if (block_id == kNoBlock) {
      barren.set(index_of(*giver));
      continue;
    }
    barren.reset();  // what was below others' blocks may be a leaf now
    ++gone[index_of(tenant_of(at(block_id)))];
    out[claimed++] = block_id;
  }
  return claimed;
}

std::uint32_t SlotTable::wanted_victims() {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  const std::uint64_t at_hand = std::uint64_t{free_} + unreclaimed_ + ready_count() + set_aside_;
  if (at_hand >= low_water_) {
    return 0;
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * std::uint64_t{low_water_} - at_hand,  //
                                                            policy_->size()));
}

void SlotTable::set_low_water(std::uint32_t blocks) {
  const MutexLock lock(mutex_);
  if (ready_) {
    low_water_ = std::clamp(blocks, options_.low_water, options_.capacity);
  }
}

std::uint32_t SlotTable::take_largest_allocation() {
  const MutexLock lock(mutex_);
  return std::exchange(largest_allocation_, 0);
}

void SlotTable::release_as_victims(Run& run) {
  let_go_in_pieces(run.block_ids());
  const MutexLock lock(mutex_);
  end_run(run);
}

// Whoever allocates meanwhile waits for one piece and not for all of them. Where there are no victims it is one piece: a
// run that is dropped is let go of leaf first, all of it.
void SlotTable::let_go_in_pieces(std::span<const BlockId> block_ids) {
  const std::size_t piece = options_.low_water != 0 ? 8 : block_ids.size();
  for (; !block_ids.empty(); block_ids = block_ids.subspan(std::min(piece, block_ids.size()))) {
    const MutexLock lock(mutex_);
    let_go_as_victims(block_ids.first(std::min(piece, block_ids.size())));
  }
}

// Unlike others, these are let go in the order of the run: it is the order in which the policy gave them up.
void SlotTable::let_go_as_victims(std::span<const BlockId> block_ids) {
  if (!ready_) {
    release_references(block_ids);
    return;
  }
  BlockId* const idle = scratch(block_ids.size());
  std::size_t idle_count = 0;
  for (const BlockId block_id : block_ids) {
    if (const BlockId idle_now = let_go(block_id); idle_now != kNoBlock) {
      idle[idle_count++] = idle_now;
    }
  }
  make_ready({idle, idle_count});
  tell_removed();
}

void SlotTable::make_ready(std::span<const BlockId> block_ids) {
  lay_down(block_ids);
  for (const BlockId block_id : block_ids) {
    Record& record = at(block_id);
    ready_->push(block_id, tenant_of(record));
    record.link = policy_->leaves_first() ? index_.find_parent(record.key) : kNoBlock;
    if (record.link != kNoBlock) {
      ready_->add_below(record.link);
    }
  }
}

void SlotTable::unready(BlockId block_id) {
  const Record& record = at(block_id);
  ready_->remove(block_id, tenant_of(record));
  if (record.link != kNoBlock) {
    ready_->remove_below(record.link);
  }
}

// Inactive ones, wherever they stand.
void SlotTable::take_out(std::span<const BlockId> block_ids) {
  ordinary_.clear();
  for (const BlockId block_id : block_ids) {
    if (ready_->contains(block_id)) {
      unready(block_id);
    } else {
      ordinary_.push_back(block_id);
    }
  }
  policy_->remove(ordinary_);
}

// Inactive from now on: those that were taken out of the ready ones only to be read stand there again.
void SlotTable::put_back(std::span<const BlockId> block_ids) {
  ordinary_.clear();
  std::vector<BlockId>& parked = collected_;  // which holds nothing here
  for (const BlockId block_id : block_ids) {
    (ready_->is_parked(block_id) ? parked : ordinary_).push_back(block_id);
  }
  make_ready(parked);
  parked.clear();
  lay_down(ordinary_);
  policy_->insert(ordinary_);
}

// Whether it would go before a block below it.
bool SlotTable::must_wait(BlockId block_id) const {
  return policy_->leaves_first() && (ready_->below(block_id) > 0 || policy_->holds_below(block_id));
}

// The tenant's ready blocks are given up, in their order; the number of them. One that would have to wait for others is
// as any other block again, for it is not known how long: those below it were used since it was claimed.
std::size_t SlotTable::take_ready(TenantId tenant, std::span<BlockId> out) {
  std::size_t taken = 0;
  BlockId next = ready_->front(tenant);
  while (taken < out.size() && next != kNoBlock) {
    const BlockId block_id = std::exchange(next, ready_->after(next));
    if (must_wait(block_id)) {
      unready(block_id);
      policy_->insert({&block_id, 1});
    } else if (!veto_ || !veto_(block_id)) {
      unready(block_id);
      if (at(block_id).is_borrowed) {
        set_aside(block_id);
      } else {
        out[taken++] = block_id;
      }
    }
  }
  return taken;
}

// The next to go of a tenant's.
std::size_t SlotTable::give_up(TenantId tenant, std::span<BlockId> out) {
  if (ready_count() > 0) {
    if (const std::size_t taken = take_ready(tenant, out); taken > 0) {
      return taken;
    }
  }
  return evict(classes_of(tenant), eviction_veto(), out);
}

// The next to go, whosever it is; kNoBlock where there is none.
BlockId SlotTable::give_up_any() {
  BlockId block_id = kNoBlock;
  for (std::uint32_t i = 0; ready_count() > 0 && i < tenants_.tenant_count(); ++i) {
    if (take_ready(TenantId{static_cast<std::uint8_t>(i)}, {&block_id, 1}) == 1) {
      return block_id;
    }
  }
  return evict(all_classes(), eviction_veto());
}

// The block lost its key: it is nobody's parent, and stands for no block that is to be ready again.
void SlotTable::leave_ready(BlockId block_id) {
  ready_->unpark(block_id);
  for (std::uint32_t i = 0; ready_->below(block_id) > 0 && i < tenants_.tenant_count(); ++i) {
    for (BlockId child = ready_->front(TenantId{static_cast<std::uint8_t>(i)}); child != kNoBlock;
         child = ready_->after(child)) {
      if (at(child).link == block_id) {
        at(child).link = kNoBlock;
        ready_->remove_below(block_id);
      }
    }
  }
}

std::uint32_t SlotTable::discard(std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  expire_due();
  std::uint32_t found = 0;
  for (const BlockKey& key : keys) {
    const KeyIndex::Place place = index_.place_of(key);
    const BlockId block_id = index_.find(key, place);
    if (block_id == kNoBlock) {
      continue;
    }
    ++found;
    if (at(block_id).references == 0) {
      drop_inactive(block_id);
    } else {
      unname(block_id, place);
      at(block_id).state = State::kDiscarded;
    }
  }
  stats_.discarded += found;
  tell_removed();
  return found;
}

Status SlotTable::restore(std::span<const RestoredBlock> blocks) {
  const MutexLock lock(mutex_);
  if (never_used_ > 0) {
    return fail(ErrorCode::kFailedPrecondition, "the pool was used before; restore its blocks before anything else");
  }
  if (blocks.size() > options_.capacity) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(blocks.size(), " blocks to restore in a pool of ", options_.capacity));
  }
  const auto count = static_cast<std::uint32_t>(blocks.size());
  if (Status status = tenants_.can_take(kDefaultTenant, count, free_); !status) {
    return status;
  }
  if (Status status = enter_restored(blocks); !status) {
    return status;
  }
  std::uint32_t end = 0;
  BlockId* const block_ids = scratch(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    block_ids[i] = blocks[i].block_id;
    end = std::max(end, index_of(blocks[i].block_id) + 1);
    Record& record = at(blocks[i].block_id);
    record.state = State::kRegistered;
    record.references = 0;
    record.mark = static_cast<std::uint8_t>(mark_ | (options_.reset_on_release ? kResetOnRelease : 0));
    record.eviction_class = class_of(kDefaultTenant, 0);
    tokens_hashes_[index_of(blocks[i].block_id)] = blocks[i].tokens_hash;
    if (notes_.size() != 0) {
      notes_[index_of(blocks[i].block_id)] = blocks[i].note;
    }
    apply_retention(blocks[i].block_id, options_.retention);
  }
  never_used_ = end;
  for (std::uint32_t i = end; i-- > 0;) {  // so that the first is taken first
    if (records_[i].state == State::kFree) {
      records_[i].link = std::exchange(first_free_, BlockId{i});
    }
  }
  free_ -= count;
  registered_ += count;
  stats_.registered += count;
  tenants_.charge(kDefaultTenant, count);
  if (count > 0) {
    deactivate({block_ids, count});
  }
  tell_restored(blocks);
  return {};
}

// Gives the blocks their keys and puts them into the index; none of them where one cannot be.
Status SlotTable::enter_restored(std::span<const RestoredBlock> blocks) {
  constexpr std::size_t kAhead = 16;
  std::vector<bool> taken(options_.capacity);
  Status status;
  std::size_t entered = 0;
  for (; entered < blocks.size(); ++entered) {
    const BlockId block_id = blocks[entered].block_id;
    const BlockKey& key = blocks[entered].key;
    if (entered + kAhead < blocks.size()) {
      const RestoredBlock& ahead = blocks[entered + kAhead];
      index_.prefetch(index_.place_of(ahead.key));
      if (index_of(ahead.block_id) < options_.capacity) {
        __builtin_prefetch(&at(ahead.block_id), 1);
      }
    }
    const KeyIndex::Place place = index_.place_of(key);
    if (index_of(block_id) >= options_.capacity) {
      status = fail(ErrorCode::kOutOfRange, str_cat("block ", entered, " to restore is in block ", index_of(block_id),
                                                    " of a pool of ", options_.capacity));
    } else if (taken[index_of(block_id)]) {
      status = fail(ErrorCode::kInvalidArgument,
                    str_cat("block ", index_of(block_id), " stands twice among the blocks to restore"));
    } else if (index_.find(key, place) != kNoBlock) {
      status = fail(ErrorCode::kInvalidArgument,
                    str_cat("key ", key.to_string(), " stands twice among the blocks to restore"));
    }
    if (!status) {
      break;
    }
    taken[index_of(block_id)] = true;
    at(block_id).key = key;
    index_.insert(block_id, place);
  }
  if (!status) {
    for (const RestoredBlock& block : blocks.first(entered)) {
      index_.erase(block.block_id, index_.place_of(block.key));
    }
  }
  return status;
}

// Parents before those below them, as blocks are told when they are new: the other way round than they were released.
void SlotTable::tell_restored(std::span<const RestoredBlock> blocks) {
  constexpr std::size_t kTold = 1024;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    Record& record = at(blocks[i].block_id);
    const bool parent_follows = i + 1 < blocks.size() && blocks[i + 1].key.is_parent_of(record.key);
    record.parent_high =
        parent_high(record.key, parent_follows ? blocks[i + 1].block_id : index_.find_parent(record.key));
    if (watched_) {
      new_blocks_.push_back(resident(blocks[i].block_id));
      if (new_blocks_.size() == kTold || i == 0) {
        tell_registered({});
      }
    }
  }
}

}  // namespace cairn
