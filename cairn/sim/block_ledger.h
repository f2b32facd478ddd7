// BlockLedger: which blocks a simulated KvManager has, where they are, and how many references each one has. Internal.
//
// Finds full blocks by hash while they are in use, and by key as long as the pool has them; partial blocks by their id.
// It knows nothing of events. The two ways to serve a Use (use_in_order.h, use_at_once.h) are built on it.
//
// Thread safety: not thread-safe.
// Ownership:  owned by a KvManager. It owns the pool and is the only user of it, so its tables are complete.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"
#include "cairn/sim/held_blocks.h"
#include "cairn/sim/move_block.h"
#include "cairn/sim/sim_table.h"

namespace cairn::sim {

// Counts by age: entry i counts ages from 2^(i-1) to less than 2^i ms, entry 0 those below 1 ms.
using EvictionAges = std::array<std::uint64_t, 33>;

}  // namespace cairn::sim

namespace cairn::sim::internal {

class BlockLedger {
 public:
  // A block that the current move evicted.
  struct Eviction {
    BlockKey key;
    SequenceHash hash;  // the hash in its events
    BlockId block_id;
    bool forgotten;  // its Removed was reported before
  };
  // A full block by its hash: in use, or announced by the current Use.
  struct Active {
    static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
    std::uint32_t place = kNowhere;  // the block id; the `number` of announce() while it is only announced
    std::uint32_t refs = 0;          // 0: only announced
    [[nodiscard]] bool vacant() const { return place == kNowhere; }
  };

  [[nodiscard]] static Result<BlockLedger> create(const BlockPoolOptions& options);

  // How many blocks ahead callers prefetch table cells.
  static constexpr std::size_t kAhead = 12;
  void prefetch(SequenceHash hash) const { active_.prefetch(value_of(hash)); }
  void prefetch(const BlockKey& key) const { registered_.prefetch(key); }

  // Full blocks by hash. The pointer is valid until the next call that is not const.
  [[nodiscard]] const Active* find(SequenceHash hash) const { return active_.find(value_of(hash)); }
  // Adds a reference to a block in use.
  void add_reference(SequenceHash hash) { add_reference(*active_.find(value_of(hash))); }
  void add_reference(Active& block) {
    ++block.refs;
    ++refs_;
  }
  // Drops a reference; false if there is none. After a series of drops either undo each one, the last one first, or
  // call release_dropped(), which releases the blocks that lost their last reference, in that order.
  [[nodiscard]] bool drop_reference(SequenceHash hash);
  void undo_drop_reference(SequenceHash hash);
  void release_dropped();

  // Adds an entry for a hash that will be in use, and true; or returns the entry that exists, and false. find() returns
  // an announced entry until it is settled or withdrawn. The pointer is valid until a withdraw(), for as many entries
  // as were reserved.
  void reserve(std::size_t announcements) { active_.reserve(announcements); }
  std::pair<Active*, bool> announce(SequenceHash hash, std::uint32_t number) {
    return active_.insert(value_of(hash), {number, 0});
  }
  void withdraw(SequenceHash hash) { active_.erase(value_of(hash)); }
  // The announced hash is in use now: one reference, to this block, which was just pinned or registered.
  void settle(Active& announced, BlockId block_id) {
    announced = {index_of(block_id), 1};
    ++uses_[index_of(block_id)].holders;
    ++refs_;
  }

  // Full blocks by key, in use or not.
  [[nodiscard]] BlockId find(const BlockKey& key) const {
    const Registered* found = registered_.find(key);
    return found == nullptr ? kNoBlock : found->block_id;
  }
  [[nodiscard]] bool in_use(BlockId block_id) const { return uses_[index_of(block_id)].holders > 0; }
  [[nodiscard]] SequenceHash reported_hash(BlockId block_id) const { return uses_[index_of(block_id)].hash; }
  // Whether a Removed was reported though the block is still there.
  [[nodiscard]] bool forgotten(BlockId block_id) const { return uses_[index_of(block_id)].forgotten; }
  void forget(BlockId block_id) { uses_[index_of(block_id)].forgotten = 1; }

  // Takes blocks that are in the pool and not in use. Settle them next, in the blocks that are returned. The span is valid
  // until the next call.
  std::span<const BlockId> pin(std::span<const BlockKey> keys);
  // `count` blocks, or std::nullopt if fewer are available. Appends the blocks that were evicted for them to
  // evictions().
  [[nodiscard]] std::optional<MutableBlocks> allocate(std::size_t count);
  [[nodiscard]] std::vector<Eviction>& evictions() { return evictions_; }
  // Sets the time, for policies that ask for it and for eviction_ages(), which counts evicted blocks by the time since they
  // were last in use and wraps around after 49 days. An earlier time is ignored.
  void set_time(TimePoint now) {
    clock_->advance(std::max(now - clock_->now(), Duration(0)));
    now_ms_ = static_cast<std::uint32_t>(clock_->now() / std::chrono::milliseconds(1));
  }
  [[nodiscard]] const EvictionAges& eviction_ages() const { return eviction_ages_; }
  // Registers and settles new blocks; each has a key, a hash and the entry that announce() returned.
  void add(MutableBlocks blocks, std::span<const BlockKey> keys, std::span<const SequenceHash> hashes,
           std::span<Active* const> announced);

  // Pins blocks for a load, without a hash that is in use: all of these keys, or std::nullopt if one is not in the
  // pool.
  [[nodiscard]] std::optional<ImmutableBlocks> pin_for_load(std::span<const BlockKey> keys);
  // Registers a block that was loaded, which must not be in the pool yet. It is inactive.
  void land(MutableBlocks block, const BlockKey& key, SequenceHash hash);

  // Partial blocks.
  [[nodiscard]] bool contains(PartialId partial) const {
    return partials_.contains(static_cast<std::uint64_t>(partial));
  }
  void keep(PartialId partial, MutableBlocks block);
  [[nodiscard]] MutableBlocks take(PartialId partial);

  [[nodiscard]] const BlockPool& pool() const { return *pool_; }
  [[nodiscard]] std::size_t available() const { return pool_->counts().available(); }
  // References to full and partial blocks.
  [[nodiscard]] std::size_t refs() const { return refs_; }

  // Aborts on the first invariant that does not hold. `for_loads`: blocks that loads have allocated or pinned and that are
  // not in use.
  void check_invariants(std::size_t for_loads) const;

 private:
  struct Registered {
    BlockId block_id = kNoBlock;
    [[nodiscard]] bool vacant() const { return block_id == kNoBlock; }
  };
  struct Partial {
    static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
    std::uint32_t place = kNowhere;  // index in partial_blocks_
    [[nodiscard]] bool vacant() const { return place == kNowhere; }
  };
  struct BlockUse {
    SequenceHash hash;           // the first hash it was in use under; events report this one
    std::uint32_t holders : 31;  // number of hashes it is in use under
    std::uint32_t forgotten : 1;
    std::uint32_t idle_since;  // ms
  };
  struct Dropped {
    SequenceHash hash;
    BlockId block_id;
  };

  BlockLedger(std::unique_ptr<ManualClock> clock, std::unique_ptr<BlockPool> pool, HeldBlocks held,
              PageArray<BlockUse> uses);

  std::unique_ptr<ManualClock> clock_;  // the pool's
  std::unique_ptr<BlockPool> pool_;
  HeldBlocks held_;
  PageArray<BlockUse> uses_;  // by block id
  SimTable<std::uint64_t, Active> active_;
  SimTable<BlockKey, Registered> registered_;
  SimTable<std::uint64_t, Partial> partials_;
  std::vector<std::optional<MutableBlocks>> partial_blocks_;
  std::vector<std::uint32_t> unused_places_;
  std::size_t refs_ = 0;
  std::uint32_t now_ms_ = 0;
  EvictionAges eviction_ages_{};
  // Contents are valid during one call; members only to reuse their memory.
  std::vector<BlockKey> evicted_keys_;
  std::vector<Eviction> evictions_;
  std::vector<Dropped> dropped_;
  std::vector<BlockId> released_;
};

}  // namespace cairn::sim::internal
