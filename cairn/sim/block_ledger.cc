#include "cairn/sim/block_ledger.h"

#include <bit>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim::internal {

Result<BlockLedger> BlockLedger::create(const BlockPoolOptions& options) {
  BlockPoolOptions repeatable = options;
  repeatable.seed = KeySeed{};  // a simulation gives the same result each time
  Result<std::unique_ptr<BlockPool>> pool = BlockPool::create(repeatable);
  if (!pool) {
    return Unexpected(std::move(pool).error());
  }
  Result<HeldBlocks> held = HeldBlocks::create(**pool);
  if (!held) {
    return Unexpected(std::move(held).error());
  }
  Result<PageArray<Slot>> slots = PageArray<Slot>::create(options.capacity);
  if (!slots) {
    return Unexpected(std::move(slots).error());
  }
  return BlockLedger(*std::move(pool), *std::move(held), *std::move(slots));
}

BlockLedger::BlockLedger(std::unique_ptr<BlockPool> pool, HeldBlocks held, PageArray<Slot> slots)
    : pool_(std::move(pool)), held_(std::move(held)), slots_(std::move(slots)) {}

bool BlockLedger::unrefer(SequenceHash hash) {
  return active_.erase_if(value_of(hash), [this, hash](Active& block) {
    --refs_;
    if (--block.refs > 0) {
      return false;
    }
    unreferred_.push_back({hash, SlotId{block.place}});
    return true;
  });
}

void BlockLedger::undo_unrefer(SequenceHash hash) {
  ++refs_;
  if (Active* block = active_.find(value_of(hash)); block != nullptr) {
    ++block->refs;
    return;
  }
  CAIRN_CHECK(!unreferred_.empty() && unreferred_.back().hash == hash, "steps are undone in reverse");
  active_.insert(value_of(hash), {index_of(unreferred_.back().slot), 1});
  unreferred_.pop_back();
}

void BlockLedger::let_go() {
  released_.clear();
  for (const Unreferred& block : unreferred_) {
    Slot& slot = slots_[index_of(block.slot)];
    if (--slot.holders == 0) {
      slot.idle_since = now_ms_;
      released_.push_back(block.slot);
    }
  }
  unreferred_.clear();
  held_.release(released_);
}

std::span<const SlotId> BlockLedger::pin(std::span<const BlockKey> keys) {
  ImmutableBlocks pinned = pool_->match_prefix(keys);
  CAIRN_CHECK(pinned.size() == keys.size(), "the ledger knows what the pool has");
  return held_.hold(std::move(pinned));
}

void BlockLedger::unpin(std::span<const BlockKey> keys) {
  released_.clear();
  for (std::size_t i = keys.size(); i > 0; --i) {
    released_.push_back(find(keys[i - 1]));
  }
  held_.release(released_);
}

std::optional<ImmutableBlocks> BlockLedger::pin_aside(std::span<const BlockKey> keys) {
  ImmutableBlocks pinned = pool_->match_prefix(keys);
  if (pinned.size() < keys.size()) {
    return std::nullopt;
  }
  keep_aside(pinned);
  return pinned;
}

void BlockLedger::keep_aside(const ImmutableBlocks& blocks) {
  pins_of_.resize(pool_->capacity());
  for (const SlotId slot : blocks.slots()) {
    ++pins_of_[index_of(slot)];
  }
  pins_ += blocks.size();
}

void BlockLedger::unpin_aside(ImmutableBlocks blocks) {
  for (const SlotId slot : blocks.slots()) {
    --pins_of_[index_of(slot)];
  }
  pins_ -= blocks.size();
}

ImmutableBlocks BlockLedger::land(MutableBlocks slot, const BlockKey& key, SequenceHash hash) {
  auto complete = std::move(slot).complete({.keys = {&key, 1}});
  CAIRN_CHECK(complete.has_value(), "there is a key for the slot");
  auto registered = std::move(*complete).register_blocks();
  CAIRN_CHECK(registered.has_value(), "what lands is not there yet");
  registered_.insert(key, {registered->slots()[0]});
  slots_[index_of(registered->slots()[0])] = {.hash = hash, .holders = 0, .forgotten = 0, .idle_since = now_ms_};
  keep_aside(*registered);
  return *std::move(registered);
}

std::optional<MutableBlocks> BlockLedger::allocate(std::size_t count) {
  if (count > available()) {
    return std::nullopt;
  }
  evicted_keys_.clear();
  Result<MutableBlocks> slots = pool_->allocate(static_cast<std::uint32_t>(count), kDefaultTenant, evicted_keys_);
  CAIRN_CHECK(slots.has_value(), "what is available can be allocated");
  for (std::size_t i = 0; i < evicted_keys_.size(); ++i) {
    if (i + kAhead < evicted_keys_.size()) {
      prefetch(evicted_keys_[i + kAhead]);
    }
    const SlotId slot = registered_.erase(evicted_keys_[i]).slot;
    CAIRN_CHECK(slot != kNoSlot, "the ledger knows what the pool has");
    evictions_.push_back({evicted_keys_[i], reported_hash(slot), slot, forgotten(slot)});
    ++eviction_ages_[static_cast<std::size_t>(std::bit_width(now_ms_ - slots_[index_of(slot)].idle_since))];
  }
  return *std::move(slots);
}

void BlockLedger::add(MutableBlocks slots, std::span<const BlockKey> keys, std::span<const SequenceHash> hashes,
                      std::span<Active* const> announced) {
  auto complete = std::move(slots).complete({.keys = keys});
  CAIRN_CHECK(complete.has_value(), "there is a key for each slot");
  auto registered = std::move(*complete).register_blocks();
  CAIRN_CHECK(registered.has_value(), "new blocks have different keys");
  for (std::uint32_t i = 0; i < registered->size(); ++i) {
    const SlotId slot = registered->slots()[i];
    registered_.insert(keys[i], {slot});
    slots_[index_of(slot)] = {.hash = hashes[i], .holders = 0, .forgotten = 0, .idle_since = now_ms_};
    settle(*announced[i], slot);
  }
  held_.hold(*std::move(registered));
}

void BlockLedger::keep(PartialId partial, MutableBlocks slot) {
  if (unused_places_.empty()) {
    unused_places_.push_back(static_cast<std::uint32_t>(partial_slots_.size()));
    partial_slots_.emplace_back();
  }
  partials_.insert(static_cast<std::uint64_t>(partial), {unused_places_.back()});
  partial_slots_[unused_places_.back()].emplace(std::move(slot));
  unused_places_.pop_back();
  ++refs_;
}

MutableBlocks BlockLedger::take(PartialId partial) {
  const std::uint32_t place = partials_.find(static_cast<std::uint64_t>(partial))->place;
  MutableBlocks slot = *std::move(partial_slots_[place]);
  partial_slots_[place].reset();
  unused_places_.push_back(place);
  partials_.erase(static_cast<std::uint64_t>(partial));
  --refs_;
  return slot;
}

void BlockLedger::check_invariants(std::size_t reserved) const {
  pool_->check_invariants();
  const PoolCounts counts = pool_->counts();
  CAIRN_CHECK(counts.registered == registered_.size(), "the ledger knows exactly what the pool has");
  std::vector<ResidentBlock> resident;
  CAIRN_CHECK(pool_->list_resident(0, pool_->capacity(), resident) == pool_->capacity(), "one walk sees all");
  std::size_t in_use_blocks = 0;
  std::size_t holders = 0;
  std::size_t pins = 0;
  for (const ResidentBlock& block : resident) {
    const SlotId slot = find(block.key);
    CAIRN_CHECK(slot != kNoSlot, "the ledger knows what the pool has");
    in_use_blocks += in_use(slot) || kept_aside(slot) ? 1 : 0;
    holders += slots_[index_of(slot)].holders;
    pins += kept_aside(slot) ? pins_of_[index_of(slot)] : 0;
  }
  CAIRN_CHECK(pins == pins_, "what is kept aside is there");
  CAIRN_CHECK(holders == active_.size(), "every hash in use is of a block that the pool has");
  CAIRN_CHECK(in_use_blocks + partials_.size() + reserved == counts.active, "what is in use is active in the pool");
  CAIRN_CHECK(refs_ >= active_.size() + partials_.size(), "what is in use has a reference");
}

}  // namespace cairn::sim::internal
