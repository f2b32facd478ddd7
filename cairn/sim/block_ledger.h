// BlockLedger: which blocks a simulated KvManager has, where, and how many references there are to each. Internal.
//
// Does:     full blocks by their hash while they are in use, and by their key as long as the pool has them; partial
//           blocks by their number. It knows nothing of events and of what is granted; the two ways to serve a Use
//           (use_in_order.h, use_at_once.h) stand on it.
// Owner:    a KvManager. It owns the pool, and nobody else acts on that, so that its tables know all that the pool has.
// Threads:  one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"
#include "cairn/sim/flat_table.h"
#include "cairn/sim/held_blocks.h"
#include "cairn/sim/move_block.h"

namespace cairn::sim {

// Counts by age: at i, those of at least 2^(i-1) and less than 2^i ms; at 0, those of less than one.
using EvictionAges = std::array<std::uint64_t, 33>;

}  // namespace cairn::sim

namespace cairn::sim::internal {

class BlockLedger {
 public:
  // Evicted by the move that is under way.
  struct Eviction {
    BlockKey key;
    SequenceHash hash;  // what it was reported as
    BlockId block_id;   // where it was
    bool forgotten;     // it was reported gone before
  };
  // A full block by its hash: in use, or announced by the Use that is under way.
  struct Active {
    static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
    std::uint32_t place = kNowhere;  // the block; of an announced one, what announce() was told
    std::uint32_t refs = 0;          // 0: announced
    [[nodiscard]] bool vacant() const { return place == kNowhere; }
  };

  [[nodiscard]] static Result<BlockLedger> create(const BlockPoolOptions& options);

  // A block that will be asked about soon is this many steps away: its cells are fetched meanwhile.
  static constexpr std::size_t kAhead = 12;
  void prefetch(SequenceHash hash) const { active_.prefetch(value_of(hash)); }
  void prefetch(const BlockKey& key) const { registered_.prefetch(key); }

  // Full blocks by hash. A pointer is good until the next call that changes anything.
  [[nodiscard]] const Active* find(SequenceHash hash) const { return active_.find(value_of(hash)); }
  // The block is in use: one reference more.
  void refer(SequenceHash hash) { refer(*active_.find(value_of(hash))); }
  void refer(Active& block) {
    ++block.refs;
    ++refs_;
  }
  // One reference less; false where there is none. Then either take that back, the last one first, or let go: in the
  // order in which they lost their last references, blocks are no longer in use.
  [[nodiscard]] bool unrefer(SequenceHash hash);
  void undo_unrefer(SequenceHash hash);
  void let_go();

  // The hash is about to be in use; or the block that is, and false. What is announced answers to find() until it is
  // settled or withdrawn. The pointer is good until a withdraw(), for as many as were reserved.
  void reserve(std::size_t announcements) { active_.reserve(announcements); }
  std::pair<Active*, bool> announce(SequenceHash hash, std::uint32_t number) {
    return active_.insert(value_of(hash), {number, 0});
  }
  void withdraw(SequenceHash hash) { active_.erase(value_of(hash)); }
  // It is in use, once, in this block, which is pinned or newly registered.
  void settle(Active& announced, BlockId block_id) {
    announced = {index_of(block_id), 1};
    ++uses_[index_of(block_id)].holders;
    ++refs_;
  }

  // Full blocks by key: all that can be matched.
  [[nodiscard]] BlockId find(const BlockKey& key) const {
    const Registered* found = registered_.find(key);
    return found == nullptr ? kNoBlock : found->block_id;
  }
  [[nodiscard]] bool in_use(BlockId block_id) const { return uses_[index_of(block_id)].holders > 0; }
  [[nodiscard]] SequenceHash reported_hash(BlockId block_id) const { return uses_[index_of(block_id)].hash; }
  // Whether a Removed was reported for a block that is still there.
  [[nodiscard]] bool forgotten(BlockId block_id) const { return uses_[index_of(block_id)].forgotten; }
  void forget(BlockId block_id) { uses_[index_of(block_id)].forgotten = 1; }

  // Takes blocks that are there and not in use; to be settled next, in the blocks that come back, or given back, the last
  // one first. The blocks are good until anything else is called.
  std::span<const BlockId> pin(std::span<const BlockKey> keys);
  void unpin(std::span<const BlockKey> keys);
  // Blocks for `count` blocks, or nothing where there are too few. What had to go is added to evictions().
  [[nodiscard]] std::optional<MutableBlocks> allocate(std::size_t count);
  [[nodiscard]] std::vector<Eviction>& evictions() { return evictions_; }
  // What time it is, in ms; and how many blocks were evicted so long after they were last in use.
  void set_time(std::uint32_t now_ms) { now_ms_ = now_ms; }
  [[nodiscard]] const EvictionAges& eviction_ages() const { return eviction_ages_; }
  // Registers and settles blocks that are not there yet: a key, a hash and its announcement for each block.
  void add(MutableBlocks block_ids, std::span<const BlockKey> keys, std::span<const SequenceHash> hashes,
           std::span<Active* const> announced);

  // Blocks that are kept though no hash is in use for them: all of these keys, or nothing; and given back.
  [[nodiscard]] std::optional<ImmutableBlocks> pin_aside(std::span<const BlockKey> keys);
  void unpin_aside(ImmutableBlocks blocks);
  // Registers a block that is not there yet, and keeps it in the same way.
  [[nodiscard]] ImmutableBlocks land(MutableBlocks block_id, const BlockKey& key, SequenceHash hash);
  // Whether blocks are kept so, and whether this one is.
  [[nodiscard]] bool keeps_aside() const { return pins_ > 0; }
  [[nodiscard]] bool kept_aside(BlockId block_id) const { return keeps_aside() && pins_of_[index_of(block_id)] > 0; }

  // Partial blocks.
  [[nodiscard]] bool contains(PartialId partial) const {
    return partials_.contains(static_cast<std::uint64_t>(partial));
  }
  void keep(PartialId partial, MutableBlocks block_id);
  [[nodiscard]] MutableBlocks take(PartialId partial);

  [[nodiscard]] const BlockPool& pool() const { return *pool_; }
  [[nodiscard]] std::size_t available() const { return pool_->counts().available(); }
  // References to full and partial blocks.
  [[nodiscard]] std::size_t refs() const { return refs_; }

  // `reserved`: blocks that whoever calls has allocated and not given back.
  void check_invariants(std::size_t reserved) const;

 private:
  struct Registered {
    BlockId block_id = kNoBlock;
    [[nodiscard]] bool vacant() const { return block_id == kNoBlock; }
  };
  struct Partial {
    static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
    std::uint32_t place = kNowhere;  // in partial_block_ids_
    [[nodiscard]] bool vacant() const { return place == kNowhere; }
  };
  struct BlockUse {
    SequenceHash hash;           // the first it was in use under: what it is reported as
    std::uint32_t holders : 31;  // hashes it is in use under
    std::uint32_t forgotten : 1;
    std::uint32_t idle_since;  // ms
  };

  struct Unreferred {
    SequenceHash hash;
    BlockId block_id;
  };

  BlockLedger(std::unique_ptr<BlockPool> pool, HeldBlocks held, PageArray<BlockUse> block_ids);

  void keep_aside(const ImmutableBlocks& blocks);

  std::unique_ptr<BlockPool> pool_;
  HeldBlocks held_;
  PageArray<BlockUse> uses_;
  FlatTable<std::uint64_t, Active> active_;
  FlatTable<BlockKey, Registered> registered_;
  FlatTable<std::uint64_t, Partial> partials_;
  std::vector<std::optional<MutableBlocks>> partial_block_ids_;
  std::vector<std::uint32_t> unused_places_;
  std::size_t refs_ = 0;
  std::uint32_t now_ms_ = 0;
  EvictionAges eviction_ages_{};
  std::size_t pins_ = 0;
  std::vector<std::uint32_t> pins_of_;  // by block; none until something is kept aside
  // Used during one call; kept for their memory.
  std::vector<BlockKey> evicted_keys_;
  std::vector<Eviction> evictions_;
  std::vector<Unreferred> unreferred_;
  std::vector<BlockId> released_;
};

}  // namespace cairn::sim::internal
