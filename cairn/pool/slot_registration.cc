// SlotTable: naming blocks and making them known.
#include <algorithm>
#include <utility>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/pool/slot_table.h"

namespace cairn {

namespace {

// What a key does not hold of its parent's sequence hash: 26 bits at most.
std::uint32_t high_bits_of(SequenceHash parent, const BlockKey& child) {
  return static_cast<std::uint32_t>(value_of(parent) >> child.fragment_bits());
}

}  // namespace

SequenceHash SlotTable::parent_of(const Record& block_id) const {
  const std::uint64_t high = block_id.parent_high == kParentUnknown ? 0 : block_id.parent_high;
  return SequenceHash{(high << block_id.key.fragment_bits()) | block_id.key.parent_fragment()};
}

// For a block of which nothing was said: `parent` holds its parent, where that is there.
std::uint32_t SlotTable::parent_high(const BlockKey& child, BlockId parent) const {
  if (parent != kNoBlock) {
    return high_bits_of(at(parent).key.sequence_hash(), child);
  }
  return child.position() == 0 ? 0 : kParentUnknown;
}

ResidentBlock SlotTable::resident(BlockId block_id) const {
  const Record& record = at(block_id);
  return {.key = record.key, .parent = parent_of(record), .tokens_hash = tokens_hashes_[index_of(block_id)]};
}

// Takes no lock: the blocks are the caller's, nobody else looks at their names before they are registered.
Status SlotTable::complete(Run& run, const BlockNames& names) {
  if (names.keys.size() != run.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(names.keys.size(), " keys for ", run.size(), " blocks; give one key for each"));
  }
  if (!names.tokens_hashes.empty() && names.tokens_hashes.size() != run.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(names.tokens_hashes.size(), " tokens hashes for ", run.size(),
                                                     " blocks; give one for each, or none"));
  }
  if (names.parent && run.size() > 0) {
    const BlockKey& first = names.keys.front();
    const std::uint64_t low = (std::uint64_t{1} << first.fragment_bits()) - 1;
    if (first.position() == 0 || (value_of(*names.parent) & low) != first.parent_fragment()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("the parent given is not the parent that block ", first.position(),
                          "'s key names; give the one it was hashed with"));
    }
  }
  for (std::uint32_t i = 0; i < run.size(); ++i) {
    const BlockKey& key = names.keys[i];
    Record& record = at(run.block_ids()[i]);
    record.key = key;
    if (i > 0 && names.keys[i - 1].is_parent_of(key)) {
      record.parent_high = high_bits_of(names.keys[i - 1].sequence_hash(), key);
    } else if (i == 0 && names.parent) {
      record.parent_high = high_bits_of(*names.parent, key);
    } else {
      record.parent_high = key.position() == 0 ? 0 : kParentUnknown;
    }
    tokens_hashes_[index_of(run.block_ids()[i])] = names.tokens_hashes.empty() ? BlockHash{0} : names.tokens_hashes[i];
  }
  if (notes_.size() != 0) {
    for (const BlockId block_id : run.block_ids()) {
      notes_[index_of(block_id)] = 0;
    }
  }
  return {};
}

// Takes no lock, as above.
Status SlotTable::complete(Run& run, std::span<const BlockFacts> facts) {
  if (facts.size() != run.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("facts of ", facts.size(), " blocks for ", run.size(), " blocks; give those of each"));
  }
  for (std::uint32_t i = 0; i < run.size(); ++i) {
    const ResidentBlock& block = facts[i].block;
    const std::uint32_t block_id = index_of(run.block_ids()[i]);
    Record& record = records_[block_id];
    record.key = block.key;
    // A pool that did not know all of the parent's hash gave zeros above what the key holds: as good as not known.
    const std::uint32_t high = high_bits_of(block.parent, block.key);
    record.parent_high = block.key.position() == 0 ? 0 : high == 0 ? kParentUnknown : high;
    tokens_hashes_[block_id] = block.tokens_hash;
    if (notes_.size() != 0) {
      notes_[block_id] = facts[i].note;
    }
  }
  return {};
}

std::vector<BlockFacts> SlotTable::facts(const Run& run) {
  std::vector<BlockFacts> facts;
  facts.reserve(run.size());
  const MutexLock lock(mutex_);
  for (const BlockId block_id : run.block_ids()) {
    facts.push_back(facts_of(block_id));
  }
  return facts;
}

BlockFacts SlotTable::facts_of(BlockId block_id) const {
  return {.block = resident(block_id),
          .priority = priority_of(at(block_id)),
          .note = notes_.size() == 0 ? 0 : notes_[index_of(block_id)]};
}

Status SlotTable::check_retention(const Retention& retention) const {
  if (retention.priority > Retention::kMaxPriority) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("priority ", retention.priority, " is beyond ", Retention::kMaxPriority, ", the highest"));
  }
  if ((retention.time_to_live || retention.priority_duration) && !options_.time_to_live) {
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

Status SlotTable::check_distinct_keys(const Run& run) {
  bool rising = true;  // as along one sequence, which is the usual case and needs no sorting
  for (std::uint32_t i = 1; rising && i < run.size(); ++i) {
    rising = at(run.block_ids()[i - 1]).key.position() < at(run.block_ids()[i]).key.position();
  }
  if (rising) {
    return {};
  }
  sorted_keys_.clear();
  for (const BlockId block_id : run.block_ids()) {
    sorted_keys_.push_back(at(block_id).key);
  }
  std::sort(sorted_keys_.begin(), sorted_keys_.end());
  const auto twice = std::adjacent_find(sorted_keys_.begin(), sorted_keys_.end());
  if (twice != sorted_keys_.end()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("key ", twice->to_string(), " stands twice in one registration; register each block once"));
  }
  return {};
}

Status SlotTable::register_run(Run& run, const Retention& retention, std::span<const Token> tokens) {
  if (Status status = check_retention(retention); !status) {
    return status;
  }
  const std::uint64_t expected_tokens = std::uint64_t{run.size()} * options_.block_size;
  if (!tokens.empty() && tokens.size() != expected_tokens) {
    return fail(ErrorCode::kInvalidArgument, str_cat(tokens.size(), " token ids for ", run.size(), " blocks of ",
                                                     options_.block_size, "; give ", expected_tokens, ", or none"));
  }
  const MutexLock lock(mutex_);
  if (Status status = check_distinct_keys(run); !status) {
    return status;
  }
  expire_due();
  tell_removed();
  constexpr std::size_t kChunk = 16;
  KeyIndex::Place places[kChunk];
  for (std::size_t begin = 0; begin < run.size(); begin += kChunk) {
    const std::span<BlockId> block_ids =
        run.block_ids().subspan(begin, std::min<std::size_t>(kChunk, run.size() - begin));
    for (std::size_t i = 0; i < block_ids.size(); ++i) {
      places[i] = index_.place_of(at(block_ids[i]).key);
      index_.prefetch(places[i]);
    }
    for (std::size_t i = 0; i < block_ids.size(); ++i) {
      const bool is_new = register_one(block_ids[i], places[i], retention);
      if (!watched_) {
        continue;
      }
      if (is_new) {
        new_blocks_.push_back(resident(block_ids[i]));
      } else if (!new_blocks_.empty()) {
        tell_registered(tokens.empty() ? tokens : tokens.first((begin + i) * options_.block_size));
      }
    }
  }
  if (!new_blocks_.empty()) {
    tell_registered(tokens);
  }
  return {};
}

// Whether the key is new to the pool. Where a duplicate is rejected, `block` becomes the one that was there before.
bool SlotTable::register_one(BlockId& block_id, KeyIndex::Place place, const Retention& retention) {
  Record& record = at(block_id);
  CAIRN_DCHECK(record.state == State::kPrivate, "only a private block is registered");
  if (record.references != fence_) {  // allocated before the fence, or while it was up: its holder alone has it
    record.state = State::kDiscarded;
    record.references = 1;
    ++stats_.discarded;
    return false;
  }
  const BlockId named = index_.find(record.key, place);
  if (named == kNoBlock) {
    record.state = State::kRegistered;
    record.references = 1;
    record.mark = static_cast<std::uint8_t>(mark_ | (options_.reset_on_release ? kResetOnRelease : 0));
    apply_retention(block_id, retention);
    if (hints_) {
      hints_->came(tenant_of(record), record.key);
    }
    if (record.parent_high == kParentUnknown) {
      record.parent_high = parent_high(record.key, index_.find_parent(record.key));
    }
    index_.insert(block_id, place);
    ++registered_;
    ++stats_.registered;
    return true;
  }
  Record& there = at(named);
  if (hints_) {
    hints_->used(named, tenant_of(there), there.key);
  }
  if (there.references++ == 0) {
    activate({&named, 1});
  } else {
    note_used({&named, 1});
  }
  raise_priority(named, retention);
  if (options_.duplicates == Duplicates::kReject) {
    make_free(block_id);
    block_id = named;
    ++stats_.deduplicated;
  } else {
    record.state = State::kDuplicate;
    record.references = 1;
    record.link = named;
    ++stats_.duplicated;
  }
  return false;
}

// Whichever is more, and holds longer, of what the block has and what a late copy of it was given.
void SlotTable::raise_priority(BlockId block_id, const Retention& retention) {
  Record& record = at(block_id);
  const std::uint32_t has = priority_of(record);
  const bool more = retention.priority > has;
  if (more) {
    record.eviction_class = class_of(tenant_of(record), retention.priority);
  }
  if (retention_clock_ && retention.priority >= has) {
    const std::optional<Duration> holds = retention_clock_->priority_duration(block_id);
    const bool longer = holds && (!retention.priority_duration || *retention.priority_duration > *holds);
    if (more || longer) {
      retention_clock_->set_priority_duration(block_id, retention.priority_duration);
    }
  }
}

// The block under which the block of this one is known: itself, unless it is a duplicate.
BlockId SlotTable::named_block(BlockId block_id) const {
  return at(block_id).state == State::kDuplicate ? at(block_id).link : block_id;
}

// Requires: the block is in use, so that neither the policy nor the retention clock holds it.
void SlotTable::apply_retention(BlockId block_id, const Retention& retention) {
  Record& record = at(block_id);
  record.eviction_class = class_of(tenant_of(record), retention.priority);
  if (retention_clock_) {
    retention_clock_->set_time_to_live(block_id, retention.time_to_live);
    retention_clock_->set_priority_duration(block_id, retention.priority_duration);
  }
}

Result<std::uint32_t> SlotTable::hint(std::span<const BlockKey> keys, const RetentionHint& hint) {
  if (!options_.hints) {
    return fail(ErrorCode::kFailedPrecondition, "the pool takes no hints; create it with hints");
  }
  if (hint.in < Duration::zero()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a block is said to return ", -hint.in.count(), " ns ago; give a time from now on"));
  }
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  const TimePoint now = clock_.now();
  std::uint32_t found = 0;
  for (const BlockKey& key : keys) {
    const BlockId block_id = index_.find(key, index_.place_of(key));
    if (block_id == kNoBlock) {
      continue;
    }
    ++found;
    if (hint.kind == RetentionHint::Kind::kWillNotReturn && at(block_id).references > 1) {
      continue;  // one session is over, but not the only one
    }
    hints_->say(block_id, hint, now);
    if (at(block_id).references == 0) {
      set_level(block_id, now);
    }
  }
  return found;
}

Status SlotTable::set_retention(const Run& run, const Retention& retention) {
  if (Status status = check_retention(retention); !status) {
    return status;
  }
  const MutexLock lock(mutex_);
  for (const BlockId block_id : run.block_ids()) {
    apply_retention(named_block(block_id), retention);
  }
  return {};
}

void SlotTable::set_reset_on_release(const Run& run, bool reset) {
  const MutexLock lock(mutex_);
  for (const BlockId block_id : run.block_ids()) {
    std::uint8_t& mark = at(named_block(block_id)).mark;
    mark = static_cast<std::uint8_t>(reset ? mark | kResetOnRelease : mark & ~kResetOnRelease);
  }
}

// The blocks in new_blocks_ are the last ones of what `tokens` stops with.
void SlotTable::tell_registered(std::span<const Token> tokens) {
  const std::span<const Token> theirs = tokens.empty() ? tokens : tokens.last(new_blocks_.size() * options_.block_size);
  const CallbackScope scope(mutex_, "an observer of a pool");
  for (PoolObserver* observer : options_.observers) {
    observer->on_registered(options_.tier, new_blocks_, theirs);
  }
  new_blocks_.clear();
}

}  // namespace cairn
