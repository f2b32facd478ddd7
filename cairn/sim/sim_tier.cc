#include "cairn/sim/sim_tier.h"

#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim {

Result<std::unique_ptr<SimTier>> SimTier::create(const BlockPoolOptions& options) {
  BlockPoolOptions repeatable = options;
  repeatable.seed = KeySeed{};  // a simulation gives the same result each time
  Result<std::unique_ptr<BlockPool>> pool = BlockPool::create(repeatable);
  if (!pool) {
    return Unexpected(std::move(pool).error());
  }
  return std::unique_ptr<SimTier>(new SimTier(*std::move(pool)));
}

MutableBlocks SimTier::make_room(std::size_t count, std::vector<BlockRecord>& evicted) {
  evicted_keys_.clear();
  Result<MutableBlocks> block_ids = pool_->allocate(static_cast<std::uint32_t>(count), kDefaultTenant, evicted_keys_);
  CAIRN_CHECK(block_ids.has_value(), "there is room in the tier");
  for (const BlockKey& key : evicted_keys_) {
    const BlockId block_id = resident_.erase(key).block_id;
    CAIRN_CHECK(block_id != kNoBlock, "the tier knows what its pool has");
    evicted.push_back(std::exchange(records_[index_of(block_id)], {}));
  }
  return *std::move(block_ids);
}

void SimTier::store(MutableBlocks block_ids, std::span<const BlockRecord> blocks) {
  for (const BlockRecord& block : blocks) {
    CAIRN_CHECK(expected_.erase(block.key).is, "what is stored was expected");
    // One by one: in this order they become evictable, so that what left the tier above first goes first here.
    MutableBlocks block_id = block_ids.take_front(1);
    resident_.insert(block.key, {block_id.block_ids()[0]});
    records_[index_of(block_id.block_ids()[0])] = block;
    auto complete = std::move(block_id).complete({.keys = {&block.key, 1}});
    CAIRN_CHECK(complete.has_value(), "there is a key for each block");
    auto registered = std::move(*complete).register_blocks();
    CAIRN_CHECK(registered.has_value(), "no block is stored twice");
  }
  CAIRN_CHECK(block_ids.empty(), "there is a block for each block");
}

ImmutableBlocks SimTier::pin(std::span<const BlockKey> keys) {
  ImmutableBlocks pinned = pool_->match_prefix(keys);
  CAIRN_CHECK(pinned.size() == keys.size(), "what is read is there");
  return pinned;
}

void SimTier::check_invariants() const {
  pool_->check_invariants();
  CAIRN_CHECK(pool_->counts().registered == resident_.size(), "the tier knows exactly what its pool has");
  std::vector<ResidentBlock> blocks;
  CAIRN_CHECK(pool_->list_resident(0, pool_->capacity(), blocks) == pool_->capacity(), "one walk sees all");
  for (const ResidentBlock& block : blocks) {
    CAIRN_CHECK(contains(block.key) && record(block.key).key == block.key, "the tier knows what its pool has");
    CAIRN_CHECK(!expected_.contains(block.key), "what is there is not expected");
  }
}

}  // namespace cairn::sim
