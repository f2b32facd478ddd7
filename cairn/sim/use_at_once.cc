#include "cairn/sim/use_at_once.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::sim::internal {
namespace {

// The parent of the full block with this number, if the Use has it and the key does not contradict it. A key at a later
// position without a parent fragment was drawn at random; then only the Use knows the parent.
std::optional<SequenceHash> parent_of(const Use& use, std::size_t number) {
  const BlockKey& key = use.keys[number];
  if (key.position() == 0 || (number == 0 && !use.parent)) {
    return std::nullopt;
  }
  const SequenceHash before = number == 0 ? use.parent->hash() : use.keys[number - 1].sequence_hash();
  const std::uint64_t known_bits = (std::uint64_t{1} << key.fragment_bits()) - 1;
  const bool adjacent = number == 0 || use.keys[number - 1].position() + 1 == key.position();
  const bool agrees = key.parent_fragment() == 0 || key.parent_fragment() == (value_of(before) & known_bits);
  return adjacent && agrees ? std::optional(before) : std::nullopt;
}

Error wrong_key(SequenceHash hash, const BlockKey& key) {
  return {ErrorCode::kInvalidArgument, str_cat("the block ", value_of(hash), " has the key of block ",
                                               value_of(key.sequence_hash()), "; give the key it was hashed to")};
}

Error two_keys(SequenceHash hash) {
  return {ErrorCode::kInvalidArgument,
          str_cat("the block ", value_of(hash), " is in use under another key; a hash names one block")};
}

}  // namespace

Status check_hash(const BlockLedger& ledger, SequenceHash hash, const BlockKey& key) {
  if (hash != key.sequence_hash()) {
    return Unexpected(wrong_key(hash, key));
  }
  const BlockLedger::Active* active = ledger.find(hash);
  if (active != nullptr && ledger.find(key) != BlockId{active->place}) {
    return Unexpected(two_keys(hash));
  }
  return {};
}

Result<std::size_t> UseAtOnce::run(const Use& use, BlockLedger& ledger, EventWriter& events) {
  if (Status planned = plan(use, ledger); !planned) {
    withdraw_plan(ledger);
    return Unexpected(std::move(planned).error());
  }
  // Hits count as available, but must not be evicted.
  if (new_keys_.size() + new_partials_.size() + hit_keys_.size() > ledger.available()) {
    withdraw_plan(ledger);
    return std::size_t{0};
  }
  commit(use, ledger);
  publish(use, ledger, events);
  return use.blocks.size();
}

Status UseAtOnce::plan(const Use& use, BlockLedger& ledger) {
  kinds_.clear();
  hit_keys_.clear();
  hit_hashes_.clear();
  hits_.clear();
  new_keys_.clear();
  new_hashes_.clear();
  new_blocks_.clear();
  new_partials_.clear();
  ledger.reserve(use.keys.size());
  for (const UniqueBlock& block : use.blocks) {
    if (const std::size_t ahead = kinds_.size() + BlockLedger::kAhead; ahead < use.keys.size()) {
      ledger.prefetch(use.keys[ahead]);
      ledger.prefetch(use.keys[ahead].sequence_hash());
    }
    if (block.is_full()) {
      CAIRN_TRY_ASSIGN(const Kind kind, plan_full(use, ledger, block.hash(), kinds_.size()));
      kinds_.push_back(kind);
    } else if (!ledger.contains(block.id()) && std::ranges::find(new_partials_, block.id()) == new_partials_.end()) {
      new_partials_.push_back(block.id());
    }
  }
  return {};
}

Result<UseAtOnce::Kind> UseAtOnce::plan_full(const Use& use, BlockLedger& ledger, SequenceHash hash,
                                             std::size_t number) {
  const BlockKey& key = use.keys[number];
  if (hash != key.sequence_hash()) {
    return Unexpected(wrong_key(hash, key));
  }
  const auto [block, is_new] = ledger.announce(hash, static_cast<std::uint32_t>(number));
  if (!is_new) {  // in use, or an earlier block of this Use has the same hash
    const bool same_key = block->refs == 0 ? use.keys[block->place] == key : ledger.find(key) == BlockId{block->place};
    return same_key ? Result<Kind>(Kind::kActive) : Unexpected(two_keys(hash));
  }
  const bool there = ledger.find(key) != kNoBlock;
  (there ? hit_keys_ : new_keys_).push_back(key);
  (there ? hit_hashes_ : new_hashes_).push_back(hash);
  (there ? hits_ : new_blocks_).push_back(block);
  return there ? Kind::kInactive : Kind::kAbsent;
}

void UseAtOnce::withdraw_plan(BlockLedger& ledger) const {
  for (const SequenceHash hash : hit_hashes_) {
    ledger.withdraw(hash);
  }
  for (const SequenceHash hash : new_hashes_) {
    ledger.withdraw(hash);
  }
}

void UseAtOnce::commit(const Use& use, BlockLedger& ledger) {
  ledger.evictions().clear();
  const std::span<const BlockId> pinned = ledger.pin(hit_keys_);
  hit_block_ids_.assign(pinned.begin(), pinned.end());
  const std::size_t count = new_keys_.size() + new_partials_.size();
  std::optional<MutableBlocks> blocks = ledger.allocate(count);
  CAIRN_CHECK(blocks.has_value(), "run() checked that as many blocks are available");
  for (std::size_t i = 0; i < hit_block_ids_.size(); ++i) {
    ledger.settle(*hits_[i], hit_block_ids_[i]);
  }
  for (const PartialId partial : new_partials_) {
    ledger.keep(partial, blocks->take_front(1));
  }
  ledger.add(*std::move(blocks), new_keys_, new_hashes_, new_blocks_);
  std::size_t number = 0;
  for (const UniqueBlock& block : use.blocks) {
    if (block.is_full() && kinds_[number++] == Kind::kActive) {
      ledger.add_reference(block.hash());
    }
  }
}

void UseAtOnce::publish(const Use& use, BlockLedger& ledger, EventWriter& events) {
  if (!events.has_sink()) {
    return;
  }
  removed_.clear();
  for (const BlockLedger::Eviction& evicted : ledger.evictions()) {
    removed_.push_back(evicted.hash);
  }
  events.removed(removed_);
  const std::size_t tokens_per_block =
      use.token_ids ? use.token_ids->size() / std::max<std::size_t>(kinds_.size(), 1) : 0;
  for (std::size_t begin = 0, end = 0; begin < kinds_.size(); begin = end) {
    end = begin + 1;
    if (kinds_[begin] != Kind::kAbsent) {
      continue;
    }
    while (end < kinds_.size() && kinds_[end] == Kind::kAbsent && parent_of(use, end)) {
      ++end;
    }
    stored_.clear();
    for (std::size_t i = begin; i < end; ++i) {
      stored_.push_back({use.keys[i].sequence_hash(), use.tokens_hashes.empty() ? BlockHash{0} : use.tokens_hashes[i]});
    }
    KvStored event{.parent = parent_of(use, begin), .blocks = stored_, .token_ids = std::nullopt};
    if (use.token_ids) {
      event.token_ids = use.token_ids->subspan(begin * tokens_per_block, (end - begin) * tokens_per_block);
    }
    events.stored(event);
  }
}

}  // namespace cairn::sim::internal
