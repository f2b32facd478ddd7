#include "cairn/sim/block_ledger.h"

#include <bit>
#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim::internal {

Result<BlockLedger> BlockLedger::create(const BlockPoolOptions& options) {
  BlockPoolOptions repeatable = options;
  // So that every run gives the same result.
  auto clock = std::make_unique<ManualClock>();
  repeatable.clock = clock.get();
  repeatable.seed = KeySeed{};
  CAIRN_TRY_ASSIGN(std::unique_ptr<BlockPool> pool, BlockPool::create(repeatable));
  CAIRN_TRY_ASSIGN(HeldBlocks held, HeldBlocks::create(*pool));
  CAIRN_TRY_ASSIGN(PageArray<BlockUse> uses, PageArray<BlockUse>::create(options.capacity));
  return BlockLedger(std::move(clock), std::move(pool), std::move(held), std::move(uses));
}

BlockLedger::BlockLedger(std::unique_ptr<ManualClock> clock, std::unique_ptr<BlockPool> pool, HeldBlocks held,
                         PageArray<BlockUse> uses)
    : clock_(std::move(clock)), pool_(std::move(pool)), held_(std::move(held)), uses_(std::move(uses)) {}

bool BlockLedger::drop_reference(SequenceHash hash) {
  return active_.erase_if(value_of(hash), [this, hash](Active& block) {
    --refs_;
    if (--block.refs > 0) {
      return false;
    }
    dropped_.push_back({hash, BlockId{block.place}});
    return true;
  });
}

void BlockLedger::undo_drop_reference(SequenceHash hash) {
  ++refs_;
  if (Active* block = active_.find(value_of(hash)); block != nullptr) {
    ++block->refs;
    return;
  }
  CAIRN_CHECK(!dropped_.empty() && dropped_.back().hash == hash, "drops are undone in reverse order");
  active_.insert(value_of(hash), {index_of(dropped_.back().block_id), 1});
  dropped_.pop_back();
}

void BlockLedger::release_dropped() {
  released_.clear();
  for (const Dropped& block : dropped_) {
    BlockUse& use = uses_[index_of(block.block_id)];
    if (--use.holders == 0) {
      use.idle_since = now_ms_;
      released_.push_back(block.block_id);
    }
  }
  dropped_.clear();
  held_.release(released_);
}

std::span<const BlockId> BlockLedger::pin(std::span<const BlockKey> keys) {
  ImmutableBlocks pinned = pool_->match_prefix(keys);
  CAIRN_CHECK(pinned.size() == keys.size(), "the ledger knows every block of the pool");
  return held_.hold(std::move(pinned));
}

std::optional<ImmutableBlocks> BlockLedger::pin_for_load(std::span<const BlockKey> keys) {
  ImmutableBlocks pinned = pool_->match_prefix(keys);
  if (pinned.size() < keys.size()) {
    return std::nullopt;
  }
  return pinned;
}

void BlockLedger::land(MutableBlocks block, const BlockKey& key, SequenceHash hash) {
  auto complete = std::move(block).complete({.keys = {&key, 1}});
  CAIRN_CHECK(complete.has_value(), "there is a key for the block");
  auto registered = std::move(*complete).register_blocks();
  CAIRN_CHECK(registered.has_value(), "a loaded block is not in the pool yet");
  registered_.insert(key, {registered->block_ids()[0]});
  uses_[index_of(registered->block_ids()[0])] = {.hash = hash, .holders = 0, .forgotten = 0, .idle_since = now_ms_};
}

std::optional<MutableBlocks> BlockLedger::allocate(std::size_t count) {
  if (count > available()) {
    return std::nullopt;
  }
  evicted_keys_.clear();
  Result<MutableBlocks> blocks = pool_->allocate(static_cast<std::uint32_t>(count), kDefaultTenant, evicted_keys_);
  CAIRN_CHECK(blocks.has_value(), "available blocks can be allocated");
  for (std::size_t i = 0; i < evicted_keys_.size(); ++i) {
    if (i + kAhead < evicted_keys_.size()) {
      prefetch(evicted_keys_[i + kAhead]);
    }
    const BlockId block_id = registered_.erase(evicted_keys_[i]).block_id;
    CAIRN_CHECK(block_id != kNoBlock, "the ledger knows every block of the pool");
    evictions_.push_back({evicted_keys_[i], reported_hash(block_id), block_id, forgotten(block_id)});
    ++eviction_ages_[static_cast<std::size_t>(std::bit_width(now_ms_ - uses_[index_of(block_id)].idle_since))];
  }
  return *std::move(blocks);
}

void BlockLedger::add(MutableBlocks blocks, std::span<const BlockKey> keys, std::span<const SequenceHash> hashes,
                      std::span<Active* const> announced) {
  auto complete = std::move(blocks).complete({.keys = keys});
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

void BlockLedger::keep(PartialId partial, MutableBlocks block) {
  if (unused_places_.empty()) {
    unused_places_.push_back(static_cast<std::uint32_t>(partial_blocks_.size()));
    partial_blocks_.emplace_back();
  }
  partials_.insert(static_cast<std::uint64_t>(partial), {unused_places_.back()});
  partial_blocks_[unused_places_.back()].emplace(std::move(block));
  unused_places_.pop_back();
  ++refs_;
}

MutableBlocks BlockLedger::take(PartialId partial) {
  const std::uint32_t place = partials_.find(static_cast<std::uint64_t>(partial))->place;
  MutableBlocks block = *std::move(partial_blocks_[place]);
  partial_blocks_[place].reset();
  unused_places_.push_back(place);
  partials_.erase(static_cast<std::uint64_t>(partial));
  --refs_;
  return block;
}

void BlockLedger::check_invariants(std::size_t for_loads) const {
  pool_->check_invariants();
  const PoolCounts counts = pool_->counts();
  CAIRN_CHECK(counts.registered == registered_.size(), "the ledger knows exactly the blocks of the pool");
  std::vector<ResidentBlock> resident;
  CAIRN_CHECK(pool_->list_resident(0, pool_->capacity(), resident) == pool_->capacity(),
              "one walk lists all resident blocks");
  std::size_t in_use_blocks = 0;
  std::size_t holders = 0;
  for (const ResidentBlock& block : resident) {
    const BlockId block_id = find(block.key);
    CAIRN_CHECK(block_id != kNoBlock, "the ledger knows every block of the pool");
    in_use_blocks += in_use(block_id) ? 1 : 0;
    holders += uses_[index_of(block_id)].holders;
  }
  CAIRN_CHECK(holders == active_.size(), "every hash in use belongs to a block of the pool");
  CAIRN_CHECK(in_use_blocks + partials_.size() + for_loads == counts.active,
              "the blocks in use are the active blocks of the pool");
  CAIRN_CHECK(refs_ >= active_.size() + partials_.size(), "every block in use has a reference");
}

}  // namespace cairn::sim::internal
