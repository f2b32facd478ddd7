// SimTier: one simulated tier below G1: a real pool and eviction policy, and a record of each block in it.
//
// A block is stored when its copy has ended, and can be evicted at once unless a reader pins it. A key is expected from
// the decision to copy it until it is stored or the copy is dropped, so that no block is copied twice.
//
// Thread safety: not thread-safe.
// Ownership:  owned by an OffloadEngine.
// Errors:     create() fails as BlockPool::create() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"
#include "cairn/sim/block_record.h"
#include "cairn/sim/offload_decision.h"
#include "cairn/sim/sim_table.h"

namespace cairn::sim {

class SimTier {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SimTier>> create(const BlockPoolOptions& options);
  SimTier(const SimTier&) = delete;
  SimTier& operator=(const SimTier&) = delete;
  ~SimTier() = default;

  [[nodiscard]] CacheLevel level() const { return pool_->tier(); }
  [[nodiscard]] PoolCounts counts() const { return pool_->counts(); }

  [[nodiscard]] bool contains(const BlockKey& key) const { return resident_.contains(key); }
  [[nodiscard]] PresenceBelow presence(const BlockKey& key) const {
    return {.resident = contains(key), .expected = expected_.contains(key)};
  }
  // A copy of the block will be stored; or will not, after all.
  void expect(const BlockKey& key) { expected_.insert(key, {true}); }
  void stop_expecting(const BlockKey& key) { expected_.erase(key); }
  [[nodiscard]] std::size_t expected() const { return expected_.size(); }

  // Allocates blocks to copy into; appends the blocks evicted for them, in order. Requires: `count` blocks are
  // available.
  [[nodiscard]] MutableBlocks make_room(std::size_t count, std::vector<BlockRecord>& evicted);
  // Registers blocks whose copies have ended. Requires: all of them are expected; `room` has one block for each.
  void store(MutableBlocks room, std::span<const BlockRecord> blocks);
  // Pins blocks while they are read. Requires: the tier has all of them.
  [[nodiscard]] ImmutableBlocks pin(std::span<const BlockKey> keys);
  // Requires: contains(key).
  [[nodiscard]] const BlockRecord& record(const BlockKey& key) const {
    return records_[index_of(resident_.find(key)->block_id)];
  }

  // Aborts on the first invariant that does not hold. For tests.
  void check_invariants() const;

 private:
  struct Resident {
    BlockId block_id = kNoBlock;
    [[nodiscard]] bool vacant() const { return block_id == kNoBlock; }
  };
  struct Expected {
    bool is = false;
    [[nodiscard]] bool vacant() const { return !is; }
  };

  explicit SimTier(std::unique_ptr<BlockPool> pool) : pool_(std::move(pool)), records_(pool_->capacity()) {}

  std::unique_ptr<BlockPool> pool_;
  std::vector<BlockRecord> records_;  // by block id
  internal::SimTable<BlockKey, Resident> resident_;
  internal::SimTable<BlockKey, Expected> expected_;
  std::vector<BlockKey> evicted_keys_;  // contents valid during one call; a member only to reuse its memory
};

}  // namespace cairn::sim
