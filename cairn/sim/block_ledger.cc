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
  Result<PageArray<BlockUse>> block_ids = PageArray<BlockUse>::create(options.capacity);
  if (!block_ids) {
    return Unexpected(std::move(block_ids).error());
  }
  return BlockLedger(*std::move(pool), *std::move(held), *std::move(block_ids));
}

BlockLedger::BlockLedger(std::unique_ptr<BlockPool> pool, HeldBlocks held, PageArray<BlockUse> block_ids)
    : pool_(std::move(pool)), held_(std::move(held)), uses_(std::move(block_ids)) {}

bool BlockLedger::unrefer(SequenceHash hash) {
  return active_.erase_if(value_of(hash), [this, hash](Active& block) {
    --refs_;
    if (--block.refs > 0) {
      return false;
    }
    unreferred_.push_back({hash, BlockId{block.place}});
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
  active_.insert(value_of(hash), {index_of(unreferred_.back().block_id), 1});
  unreferred_.pop_back();
}

void BlockLedger::let_go() {
  released_.clear();
  for (const Unreferred& block : unreferred_) {
    BlockUse& block_id = uses_[index_of(block.block_id)];
    if (--block_id.holders == 0) {
      block_id.idle_since = now_ms_;
      released_.push_back(block.block_id);
    }
  }
  unreferred_.clear();
  held_.release(released_);
}

std::span<const BlockId> BlockLedger::pin(std::span<const BlockKey> keys) {
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
  for (const BlockId block_id : blocks.block_ids()) {
    ++pins_of_[index_of(block_id)];
  }
  pins_ += blocks.size();
}

void BlockLedger::unpin_aside(ImmutableBlocks blocks) {
  for (const BlockId block_id : blocks.block_ids()) {
    --pins_of_[index_of(block_id)];
  }
  pins_ -= blocks.size();
}

ImmutableBlocks BlockLedger::land(MutableBlocks block_id, const BlockKey& key, SequenceHash hash) {
  auto complete = std::move(block_id).complete({.keys = {&key, 1}});
  CAIRN_CHECK(complete.has_value(), "there is a key for the block");
  auto registered = std::move(*complete).register_blocks();
  CAIRN_CHECK(registered.has_value(), "what lands is not there yet");
  registered_.insert(key, {registered->block_ids()[0]});
  uses_[index_of(registered->block_ids()[0])] = {.hash = hash, .holders = 0, .forgotten = 0, .idle_since = now_ms_};
  keep_aside(*registered);
  return *std::move(registered);
}

std::optional<MutableBlocks> BlockLedger::allocate(std::size_t count) {
  if (count > available()) {
    return std::nullopt;
  }
  evicted_keys_.clear();
  Result<MutableBlocks> block_ids = pool_->allocate(static_cast<std::uint32_t>(count), kDefaultTenant, evicted_keys_);
  CAIRN_CHECK(block_ids.has_value(), "what is available can be allocated");
  for (std::size_t i = 0; i < evicted_keys_.size(); ++i) {
    if (i + kAhead < evicted_keys_.size()) {
      prefetch(evicted_keys_[i + kAhead]);
    }
    const BlockId block_id = registered_.erase(evicted_keys_[i]).block_id;
    CAIRN_CHECK(block_id != kNoBlock, "the ledger knows what the pool has");
    evictions_.push_back({evicted_keys_[i], reported_hash(block_id), block_id, forgotten(block_id)});
    ++eviction_ages_[static_cast<std::size_t>(std::bit_width(now_ms_ - uses_[index_of(block_id)].idle_since))];
  }
  return *std::move(block_ids);
}

void BlockLedger::add(MutableBlocks block_ids, std::span<const BlockKey> keys, std::span<const SequenceHash> hashes,
                      std::span<Active* const> announced) {
  auto complete = std::move(block_ids).complete({.keys = keys});
  CAIRN_CHECK(complete.has_value(), "there is a key for each block");
  auto registered = std::move(*complete).register_blocks();
  CAIRN_CHECK(registered.has_value(), "new blocks have different keys");
  for (std::uint32_t i = 0; i < registered->size(); ++i) {
    const BlockId block_id = registered->block_ids()[i];
    registered_.insert(keys[i], {block_id});
    uses_[index_of(block_id)] = {.hash = hashes[i], .holders = 0, .forgotten = 0, .idle_since = now_ms_};
    settle(*announced[i], block_id);
  }
  held_.hold(*std::move(registered));
}

void BlockLedger::keep(PartialId partial, MutableBlocks block_id) {
  if (unused_places_.empty()) {
    unused_places_.push_back(static_cast<std::uint32_t>(partial_block_ids_.size()));
    partial_block_ids_.emplace_back();
  }
  partials_.insert(static_cast<std::uint64_t>(partial), {unused_places_.back()});
  partial_block_ids_[unused_places_.back()].emplace(std::move(block_id));
  unused_places_.pop_back();
  ++refs_;
}

MutableBlocks BlockLedger::take(PartialId partial) {
  const std::uint32_t place = partials_.find(static_cast<std::uint64_t>(partial))->place;
  MutableBlocks block_id = *std::move(partial_block_ids_[place]);
  partial_block_ids_[place].reset();
  unused_places_.push_back(place);
  partials_.erase(static_cast<std::uint64_t>(partial));
  --refs_;
  return block_id;
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
    const BlockId block_id = find(block.key);
    CAIRN_CHECK(block_id != kNoBlock, "the ledger knows what the pool has");
    in_use_blocks += in_use(block_id) || kept_aside(block_id) ? 1 : 0;
    holders += uses_[index_of(block_id)].holders;
    pins += kept_aside(block_id) ? pins_of_[index_of(block_id)] : 0;
  }
  CAIRN_CHECK(pins == pins_, "what is kept aside is there");
  CAIRN_CHECK(holders == active_.size(), "every hash in use is of a block that the pool has");
  CAIRN_CHECK(in_use_blocks + partials_.size() + reserved == counts.active, "what is in use is active in the pool");
  CAIRN_CHECK(refs_ >= active_.size() + partials_.size(), "what is in use has a reference");
}

}  // namespace cairn::sim::internal
