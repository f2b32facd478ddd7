// SimTier: one simulated tier below G1: a real pool and eviction policy, and what is known of each block in it.
//
// Does:     blocks are stored when their copies have ended, and are evictable at once; whoever reads them pins them.
//           A key is expected from the moment its copy is decided until it is stored or given up, so that no block is
//           copied twice.
// Owner:    an OffloadEngine.
// Threads:  one.
// Fails:    create(): as the pool does.
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
#include "cairn/sim/flat_table.h"
#include "cairn/sim/offload_decision.h"

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
  // A copy of the block is on its way; or will not come.
  void expect(const BlockKey& key) { expected_.insert(key, {true}); }
  void give_up(const BlockKey& key) { expected_.erase(key); }
  [[nodiscard]] std::size_t expected() const { return expected_.size(); }

  // Blocks to copy into; appends what had to go for them, in the order of eviction. Requires: there is room.
  [[nodiscard]] MutableBlocks make_room(std::size_t count, std::vector<BlockRecord>& evicted);
  // The copies into these blocks are over: a block that was expected for each.
  void store(MutableBlocks block_ids, std::span<const BlockRecord> blocks);
  // Holds blocks that are there while they are read. Requires: all of them are.
  [[nodiscard]] ImmutableBlocks pin(std::span<const BlockKey> keys);
  // Of a block that is there.
  [[nodiscard]] const BlockRecord& record(const BlockKey& key) const {
    return records_[index_of(resident_.find(key)->block_id)];
  }

  // Walks everything and aborts on the first invariant that does not hold. For tests.
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
  std::vector<BlockRecord> records_;  // by block
  internal::FlatTable<BlockKey, Resident> resident_;
  internal::FlatTable<BlockKey, Expected> expected_;
  std::vector<BlockKey> evicted_keys_;  // during one call; kept for its memory
};

}  // namespace cairn::sim
