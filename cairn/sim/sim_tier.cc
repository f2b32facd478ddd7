#include "cairn/sim/sim_tier.h"

#include <utility>

#include "cairn/base/check.h"

namespace cairn::sim {

Result<std::unique_ptr<SimTier>> SimTier::create(const BlockPoolOptions& options) {
  BlockPoolOptions repeatable = options;
  repeatable.seed = KeySeed{};  // so that every run gives the same result
  CAIRN_TRY_ASSIGN(std::unique_ptr<BlockPool> pool, BlockPool::create(repeatable));
  return std::unique_ptr<SimTier>(new SimTier(std::move(pool)));
}

MutableBlocks SimTier::make_room(std::size_t count, std::vector<BlockRecord>& evicted) {
  evicted_keys_.clear();
  Result<MutableBlocks> room = pool_->allocate(static_cast<std::uint32_t>(count), kDefaultTenant, evicted_keys_);
  CAIRN_CHECK(room.has_value(), "there is room in the tier");
  for (const BlockKey& key : evicted_keys_) {
    const BlockId block_id = resident_.erase(key).block_id;
    CAIRN_CHECK(block_id != kNoBlock, "the tier knows every block of its pool");
    evicted.push_back(std::exchange(records_[index_of(block_id)], {}));
  }
  return *std::move(room);
}

void SimTier::store(MutableBlocks room, std::span<const BlockRecord> blocks) {
  for (const BlockRecord& block : blocks) {
    CAIRN_CHECK(expected_.erase(block.key).is, "a block that is stored was expected");
    // One by one, so that they become evictable in this order: the block that left the tier above first goes first
    // here.
    MutableBlocks target = room.take_front(1);
    resident_.insert(block.key, {target.block_ids()[0]});
    records_[index_of(target.block_ids()[0])] = block;
    auto complete = std::move(target).complete({.keys = {&block.key, 1}});
    CAIRN_CHECK(complete.has_value(), "there is a key for each block");
    auto registered = std::move(*complete).register_blocks();
    CAIRN_CHECK(registered.has_value(), "no block is stored twice");
  }
  CAIRN_CHECK(room.empty(), "there is room for exactly these blocks");
}

ImmutableBlocks SimTier::pin(std::span<const BlockKey> keys) {
  ImmutableBlocks pinned = pool_->match_prefix(keys);
  CAIRN_CHECK(pinned.size() == keys.size(), "the tier has the blocks that are read");
  return pinned;
}

void SimTier::check_invariants() const {
  pool_->check_invariants();
  CAIRN_CHECK(pool_->counts().registered == resident_.size(), "the tier knows exactly the blocks of its pool");
  std::vector<ResidentBlock> blocks;
  CAIRN_CHECK(pool_->list_resident(0, pool_->capacity(), blocks) == pool_->capacity(),
              "one walk lists all resident blocks");
  for (const ResidentBlock& block : blocks) {
    CAIRN_CHECK(contains(block.key) && record(block.key).key == block.key, "the tier knows every block of its pool");
    CAIRN_CHECK(!expected_.contains(block.key), "a resident block is not expected");
  }
}

}  // namespace cairn::sim
