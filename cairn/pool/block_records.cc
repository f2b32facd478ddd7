#include "cairn/pool/block_records.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::uint32_t kSweepStep = 256;  // blocks, while an allocation waits

std::uint32_t levels_of(const BlockPoolOptions& options) { return options.hints ? kHintLevels : 1; }

// What a key does not hold of its parent's sequence hash: 26 bits at most.
std::uint32_t high_bits_of(SequenceHash parent, const BlockKey& child) {
  return static_cast<std::uint32_t>(value_of(parent) >> child.fragment_bits());
}

}  // namespace

Result<BlockRecords> BlockRecords::create(const BlockPoolOptions& options) {
  CAIRN_TRY_ASSIGN(TenantLedger tenants, TenantLedger::create(options.tenants, options.capacity));
  if (const std::uint32_t most = ClassLayout::max_tenants(levels_of(options)); tenants.tenant_count() > most) {
    return fail(ErrorCode::kInvalidArgument, str_cat(tenants.tenant_count(), " tenants are more than the ", most,
                                                     " that a pool with hints can have; use several pools"));
  }
  CAIRN_TRY_ASSIGN(PageArray<Record> records, PageArray<Record>::create(options.capacity));
  CAIRN_TRY_ASSIGN(PageArray<BlockHash> tokens_hashes, PageArray<BlockHash>::create(options.capacity));
  CAIRN_TRY_ASSIGN(PageArray<std::uint64_t> checksums,
                   PageArray<std::uint64_t>::create(options.checksums ? options.capacity : 0));
  return BlockRecords(options, std::move(tenants), std::move(records), std::move(tokens_hashes), std::move(checksums));
}

BlockRecords::BlockRecords(const BlockPoolOptions& options, TenantLedger tenants, PageArray<Record> records,
                           PageArray<BlockHash> tokens_hashes, PageArray<std::uint64_t> checksums)
    : capacity_(options.capacity),
      reset_on_release_(options.reset_on_release),
      classes_(tenants.tenant_count(), levels_of(options)),
      tenants_(std::move(tenants)),
      records_(std::move(records)),
      tokens_hashes_(std::move(tokens_hashes)),
      checksums_(std::move(checksums)),
      free_(options.capacity) {}

bool BlockRecords::is_current(BlockId block_id) const {
  const Record& record = at(registered_as(block_id));
  return record.state == State::kPrivate ? record.references == fence_
                                         : record.state == State::kRegistered && is_current(record);
}

ResidentBlock BlockRecords::resident(BlockId block_id) const {
  const Record& record = at(block_id);
  const std::uint64_t high = record.parent_high == kParentUnknown ? 0 : record.parent_high;
  return {.key = record.key,
          .parent = SequenceHash{(high << record.key.fragment_bits()) | record.key.parent_fragment()},
          .tokens_hash = tokens_hashes_[index_of(block_id)]};
}

BlockFacts BlockRecords::facts(BlockId block_id) const {
  return {.block = resident(block_id),
          .priority = priority_of(block_id),
          .checksum = checksums_.size() == 0 ? 0 : checksums_[index_of(block_id)]};
}

BlockId BlockRecords::take_free() {
  --free_;
  if (first_free_ == kNoBlock) {
    return BlockId{used_end_++};
  }
  return std::exchange(first_free_, at(first_free_).link);
}

void BlockRecords::make_private(std::span<const BlockId> block_ids, TenantId tenant) {
  for (const BlockId block_id : block_ids) {
    Record& record = at(block_id);
    record.state = State::kPrivate;
    record.references = allocation_fence_;
    record.eviction_class = classes_.class_of(tenant, 0);
  }
}

void BlockRecords::make_free(BlockId block_id) {
  Record& record = at(block_id);
  if (record.is_borrowed) [[unlikely]] {
    record.state = State::kQuarantined;
    ++quarantined_;
    return;
  }
  tenants_.discharge(tenant_of(block_id), 1);
  record.state = State::kFree;
  record.link = std::exchange(first_free_, block_id);
  ++free_;
}

Status BlockRecords::complete(std::span<const BlockId> block_ids, const BlockNames& names) {
  if (names.keys.size() != block_ids.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(names.keys.size(), " keys for ", block_ids.size(), " blocks; give one key for each"));
  }
  if (!names.tokens_hashes.empty() && names.tokens_hashes.size() != block_ids.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(names.tokens_hashes.size(), " tokens hashes for ",
                                                     block_ids.size(), " blocks; give one for each, or none"));
  }
  if (names.parent && !block_ids.empty()) {
    const BlockKey& first = names.keys.front();
    const std::uint64_t low = (std::uint64_t{1} << first.fragment_bits()) - 1;
    if (first.position() == 0 || (value_of(*names.parent) & low) != first.parent_fragment()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("the parent given is not the parent that block ", first.position(),
                          "'s key names; give the one it was hashed with"));
    }
  }
  for (std::size_t i = 0; i < block_ids.size(); ++i) {
    const BlockKey& key = names.keys[i];
    Record& record = at(block_ids[i]);
    record.key = key;
    if (i > 0 && names.keys[i - 1].is_parent_of(key)) {
      record.parent_high = high_bits_of(names.keys[i - 1].sequence_hash(), key);
    } else if (i == 0 && names.parent) {
      record.parent_high = high_bits_of(*names.parent, key);
    } else {
      record.parent_high = key.position() == 0 ? 0 : kParentUnknown;
    }
    tokens_hashes_[index_of(block_ids[i])] = names.tokens_hashes.empty() ? BlockHash{0} : names.tokens_hashes[i];
  }
  if (checksums_.size() != 0) {
    for (const BlockId block_id : block_ids) {
      checksums_[index_of(block_id)] = 0;
    }
  }
  return {};
}

Status BlockRecords::complete(std::span<const BlockId> block_ids, std::span<const BlockFacts> facts) {
  if (facts.size() != block_ids.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("facts of ", facts.size(), " blocks for ", block_ids.size(), " blocks; give those of each"));
  }
  for (std::size_t i = 0; i < block_ids.size(); ++i) {
    const ResidentBlock& block = facts[i].block;
    Record& record = at(block_ids[i]);
    record.key = block.key;
    // The other pool may not have known all of the parent's hash. It gave zeros then for the bits that the key lacks.
    const std::uint32_t high = high_bits_of(block.parent, block.key);
    record.parent_high = block.key.position() == 0 ? 0 : high == 0 ? kParentUnknown : high;
    tokens_hashes_[index_of(block_ids[i])] = block.tokens_hash;
    if (checksums_.size() != 0) {
      checksums_[index_of(block_ids[i])] = facts[i].checksum;
    }
  }
  return {};
}

void BlockRecords::quarantine(std::span<const BlockId> block_ids) {
  for (const BlockId block_id : block_ids) {
    at(block_id).state = State::kQuarantined;
  }
  quarantined_ += static_cast<std::uint32_t>(block_ids.size());
}

void BlockRecords::release_quarantined(std::span<const BlockId> block_ids) {
  quarantined_ -= static_cast<std::uint32_t>(block_ids.size());
  for (const BlockId block_id : block_ids) {
    make_free(block_id);
  }
}

void BlockRecords::make_registered(BlockId block_id) {
  Record& record = at(block_id);
  CAIRN_DCHECK(record.state == State::kPrivate, "only a private block is registered");
  record.state = State::kRegistered;
  record.references = 1;
  record.fence_mark = new_mark();
}

void BlockRecords::make_duplicate(BlockId block_id, BlockId original) {
  Record& record = at(block_id);
  record.state = State::kDuplicate;
  record.references = 1;
  record.link = original;
}

void BlockRecords::make_discarded(BlockId block_id) {
  at(block_id).state = State::kDiscarded;
  at(block_id).references = 1;
}

void BlockRecords::set_unknown_parent(BlockId block_id, BlockId parent) {
  Record& record = at(block_id);
  if (parent != kNoBlock) {
    record.parent_high = high_bits_of(at(parent).key.sequence_hash(), record.key);
  } else {
    record.parent_high = record.key.position() == 0 ? 0 : kParentUnknown;
  }
}

void BlockRecords::set_reset_on_release(BlockId block_id, bool reset) {
  std::uint8_t& mark = at(block_id).fence_mark;
  mark = static_cast<std::uint8_t>(reset ? mark | kResetOnRelease : mark & ~kResetOnRelease);
}

void BlockRecords::restore(std::span<const RestoredBlock> blocks) {
  const auto count = static_cast<std::uint32_t>(blocks.size());
  for (const RestoredBlock& block : blocks) {
    Record& record = at(block.block_id);
    record.state = State::kRegistered;
    record.references = 0;
    record.fence_mark = new_mark();
    record.eviction_class = classes_.class_of(kDefaultTenant, 0);
    tokens_hashes_[index_of(block.block_id)] = block.tokens_hash;
    if (checksums_.size() != 0) {
      checksums_[index_of(block.block_id)] = block.checksum;
    }
    used_end_ = std::max(used_end_, index_of(block.block_id) + 1);
  }
  for (std::uint32_t i = used_end_; i-- > 0;) {  // so that the first is taken first
    if (records_[i].state == State::kFree) {
      records_[i].link = std::exchange(first_free_, BlockId{i});
    }
  }
  free_ -= count;
  tenants_.charge(kDefaultTenant, count);
}

// The block lost its last reference, and is a duplicate, discarded or stale.
BlockId BlockRecords::drop_unmatchable(BlockId block_id) {
  if (at(block_id).state == State::kDuplicate) {
    const BlockId original = at(block_id).link;
    make_free(block_id);
    return drop_reference(original);
  }
  make_free(block_id);
  return kNoBlock;
}

void BlockRecords::lend(BlockId block_id) {
  at(block_id).is_borrowed = true;
  ++borrowed_;
}

void BlockRecords::defer_eviction(BlockId block_id) {
  at(block_id).references = 1;
  at(block_id).is_deferred = true;
  ++deferred_;
}

bool BlockRecords::end_loan(BlockId block_id) {
  Record& record = at(block_id);
  record.is_borrowed = false;
  --borrowed_;
  if (record.state == State::kQuarantined) {
    --quarantined_;
    make_free(block_id);
    return false;
  }
  const bool was_deferred = record.is_deferred;
  record.is_deferred = false;
  deferred_ -= was_deferred ? 1 : 0;
  return was_deferred;
}

void BlockRecords::raise_fence(std::uint32_t inactive) {
  if (sweep_begin_ == sweep_end_) {
    fences_unswept_ = 0;
  } else if (++fences_unswept_ == kFenceMarks - 1) {
    sweep(sweep_end_);  // the next mark is that of the oldest blocks which are not swept
    fences_unswept_ = 0;
  }
  unreclaimed_ += inactive;
  sweep_begin_ = 0;
  sweep_end_ = used_end_;
  ++fence_;
  allocation_fence_ = 0;
  fence_mark_ = static_cast<std::uint8_t>((fence_ % kFenceMarks) << 1);
}

bool BlockRecords::sweep(std::uint32_t count) {
  for (const std::uint32_t end = sweep_begin_ + std::min(count, sweep_end_ - sweep_begin_); sweep_begin_ < end;
       ++sweep_begin_) {
    Record& record = records_[sweep_begin_];
    if (record.state != State::kRegistered || is_current(record)) {
      continue;
    }
    if (record.references > 0) {
      record.state = State::kDiscarded;
    } else {
      make_free(BlockId{sweep_begin_});
      --unreclaimed_;
    }
  }
  return sweep_begin_ < sweep_end_;
}

void BlockRecords::sweep_for(std::uint32_t count, TenantId tenant) {
  const std::uint64_t wanted = std::uint64_t{count} + tenants_.reserved();
  while (unreclaimed_ > 0 && (free_ < wanted || !tenants_.can_take(tenant, count, free_))) {
    sweep(kSweepStep);
  }
}

void BlockRecords::check_invariants() const {
  std::uint32_t free = capacity_ - used_end_;
  for (BlockId block_id = first_free_; block_id != kNoBlock; block_id = at(block_id).link) {
    CAIRN_CHECK(at(block_id).state == State::kFree, "R1: the free list holds free blocks only");
    CAIRN_CHECK(++free <= capacity_, "R1: the free list has no cycle");
  }
  CAIRN_CHECK(free == free_, "R1: every free block is in the free list");
  std::uint32_t quarantined = 0;
  std::uint32_t unreclaimed = 0;
  std::uint32_t borrowed = 0;
  std::uint32_t deferred = 0;
  std::vector<std::uint32_t> duplicates(capacity_);
  std::vector<std::uint32_t> charged(tenants_.tenant_count());
  for (std::uint32_t i = 0; i < used_end_; ++i) {
    const Record& record = records_[i];
    charged[index_of(tenant_of(BlockId{i}))] += record.state != State::kFree ? 1 : 0;
    quarantined += record.state == State::kQuarantined ? 1 : 0;
    borrowed += record.is_borrowed ? 1 : 0;
    deferred += record.is_deferred ? 1 : 0;
    CAIRN_CHECK(!record.is_borrowed || record.state != State::kFree, "R6: a borrowed block is not free");
    CAIRN_CHECK(!record.is_deferred || (record.is_borrowed && record.references > 0),
                "R6: a block whose eviction was deferred is borrowed and has a reference");
    if (record.state == State::kRegistered && !is_current(record)) {
      CAIRN_CHECK(i >= sweep_begin_ && i < sweep_end_, "R5: the sweep leaves no stale block behind");
      unreclaimed += record.references == 0 ? 1 : 0;
    } else if (record.state == State::kDuplicate) {
      CAIRN_CHECK(record.references > 0, "R4: a duplicate has a reference");
      const Record& original = at(record.link);
      CAIRN_CHECK(
          (original.state == State::kRegistered || original.state == State::kDiscarded) && original.key == record.key,
          "R2: a duplicate is of a block with its key");
      ++duplicates[index_of(record.link)];
    } else if (record.state == State::kDiscarded) {
      CAIRN_CHECK(record.references > 0, "R4: a discarded block has a reference");
    }
  }
  for (std::uint32_t i = 0; i < used_end_; ++i) {
    CAIRN_CHECK(duplicates[i] == 0 || records_[i].references >= duplicates[i], "R2: each duplicate holds a reference");
  }
  CAIRN_CHECK(
      quarantined == quarantined_ && borrowed == borrowed_ && deferred == deferred_ && unreclaimed == unreclaimed_,
      "R1: the blocks in each state add up");
  for (std::uint32_t i = 0; i < charged.size(); ++i) {
    CAIRN_CHECK(tenants_.usage(TenantId{static_cast<std::uint8_t>(i)})->used == charged[i],
                "R3: each tenant is charged for its blocks");
  }
  CAIRN_CHECK(free_ >= tenants_.unmet(), "R3: the free blocks cover the unused reservations");
}

}  // namespace cairn
