// BlockPool: a fixed number of blocks in one tier, with prefix reuse. It allocates, registers, finds and evicts blocks.
//
// The pool decides which contents are in which block and knows nothing of bytes. A block is free, private to the holder
// that allocated it, active (registered and referenced), inactive (registered and evictable) or quarantined. Which
// block an allocation gets is unspecified. See docs/pool.md.
//
// Thread safety: every call is safe from any thread. Each call takes the pool's one mutex once, for any number of
// blocks.
// Ownership: the creator's. Every handle must be destroyed before the pool (checked).
// Errors: create() fails on contradictory options, allocate() if there are too few blocks.
// Complexity: calls allocate no memory once the pool has warmed up, except those that return a vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/evict/request_ending.h"
#include "cairn/evict/retention.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

enum class Duplicates : std::uint8_t {
  kReject,  // one block for each key: a second one is freed
  kAllow,   // several blocks may hold copies of the contents of one key
};

// What a tenant of a shared pool may have. A block is charged to the tenant that allocated it until the block is free
// again.
struct TenantQuota {
  std::string name;
  std::uint32_t reserved = 0;               // always available to the tenant
  std::optional<std::uint32_t> limit = {};  // std::nullopt: the whole pool
};

class ReturnModel;

struct BlockPoolOptions {
  std::uint32_t capacity = 0;    // blocks
  std::uint32_t block_size = 0;  // tokens in a block
  CacheLevel tier = CacheLevel::kG1;
  PolicyKind policy = PolicyKind::kAdaptive;  // see docs/decisions/0007-adaptive-is-the-default.md
  bool leaves_first = false;                  // with any policy, evict a block only after its children
  Duplicates duplicates = Duplicates::kReject;
  bool reset_on_release = false;          // blocks become free, not inactive, when the last holder releases them
  Retention retention = {};               // of blocks that are registered without a retention
  bool time_to_live = false;              // allow a time to live, and a priority for a time; costs 36 bytes a block
  bool hints = false;                     // allow hint(); costs 52 bytes a block, those 36 included
  bool checksums = false;                 // keep a checksum for each block; costs 8 bytes a block
  std::vector<TenantQuota> tenants = {};  // empty: one tenant with the whole pool
  const Clock* clock = nullptr;           // null: the system's clock; outlives the pool
  // Seed of what the policy and the hints remember of keys; std::nullopt: random. With the same seed, a simulation gets
  // the same victims.
  std::optional<KeySeed> seed = {};
  // When blocks return, learned together with the other pools of a manager; null: the pool learns alone.
  std::shared_ptr<ReturnModel> returns = nullptr;
  std::vector<PoolObserver*> observers = {};  // called in this order; outlive the pool
  // Called before a block is evicted, under the pool's lock; false keeps the block for now. Must not call the pool.
  std::function<bool(BlockId, const BlockKey&)> may_evict = {};
  // How many blocks should be free or ready to be evicted at any time, so that they can be copied elsewhere before they
  // are evicted: see claim_victims(). At most the capacity; 0: the pool keeps no blocks ready. Costs 12 bytes a block.
  // set_low_water() raises it at run time.
  std::uint32_t low_water = 0;
  // Called by each allocate() that leaves fewer than that, if there are blocks to claim. Under the pool's lock: must
  // return soon, must not call the pool, and may take only locks of a higher rank.
  std::function<void()> when_low = {};
};

// free + inactive + active + quarantined = total, always.
struct PoolCounts {
  std::uint32_t total = 0;
  std::uint32_t free = 0;
  std::uint32_t inactive = 0;
  std::uint32_t active = 0;  // includes private blocks
  std::uint32_t quarantined = 0;
  std::uint32_t registered = 0;  // distinct keys that can be matched
  std::uint32_t pinned = 0;      // references held by PinnedBlocks
  std::uint32_t ready = 0;       // of the inactive blocks, those to be evicted first: release_as_victims()
  std::uint32_t borrowed = 0;    // of the inactive blocks, those that a copy reads: they cannot be evicted now
  [[nodiscard]] std::uint32_t available() const { return free + inactive - borrowed; }

  friend bool operator==(const PoolCounts&, const PoolCounts&) = default;
};

// Since the pool was created.
struct PoolStats {
  std::uint64_t allocated = 0;            // blocks
  std::uint64_t allocation_failures = 0;  // calls
  std::uint64_t evicted = 0;
  std::uint64_t expired = 0;
  std::uint64_t reset = 0;
  std::uint64_t discarded = 0;
  std::uint64_t registered = 0;
  std::uint64_t deduplicated = 0;  // blocks freed because their key was registered already
  std::uint64_t duplicated = 0;    // blocks kept although their key was registered already
  std::uint64_t lookups = 0;       // keys looked up
  std::uint64_t hits = 0;          // of those, found
  std::uint64_t abandoned_in_quarantine = 0;
};

struct TenantUsage {
  std::uint32_t used = 0;      // blocks charged to the tenant
  std::uint32_t inactive = 0;  // of those, evictable
};

struct ScatteredMatch {
  ImmutableBlocks blocks;                              // the hits, in the order of the keys
  std::vector<std::optional<std::uint32_t>> position;  // for each key, where its block is in `blocks`
};

struct ResetOutcome {
  std::uint32_t reset = 0;
  std::uint32_t not_found = 0;
  std::uint32_t in_use = 0;  // not reset
};

// The memory that a fence needs, allocated before anything changes; see BlockPool::plan_fence().
class PoolFence {
 public:
  PoolFence(PoolFence&&) noexcept;
  PoolFence& operator=(PoolFence&&) noexcept;
  ~PoolFence();

 private:
  friend class BlockPool;
  struct Tables;
  explicit PoolFence(std::unique_ptr<Tables> tables);

  std::unique_ptr<Tables> tables_;
};

struct PoolFenceOutcome {
  std::uint32_t dropped = 0;  // blocks that were inactive
  std::uint32_t in_use = 0;   // blocks that their holders keep, and that are no longer found
};

// A block that a tier still has from before the process started.
struct RestoredBlock {
  BlockId block_id;
  BlockKey key;
  BlockHash tokens_hash{0};
  std::uint64_t checksum = 0;  // ignored if the pool keeps no checksums
};

// A block that can be matched.
struct ListedBlock {
  BlockId block_id = kNoBlock;
  BlockFacts facts;
};

// What peek() sees of a block.
struct PeekedBlock {
  BlockFacts facts;
  std::optional<BlockKey> parent;  // of the block before it in its sequence, if the pool has that
  bool in_use = false;
  TenantId tenant = kDefaultTenant;  // that the block is charged to
};

class BlockPool final : public ResidentSource {
 public:
  [[nodiscard]] static Result<std::unique_ptr<BlockPool>> create(const BlockPoolOptions& options);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() override;

  // Allocates blocks to be filled: free blocks first, then ready ones, then victims of the policy. All or nothing:
  // returns ErrorCode::kExhausted if there are too few. (If may_evict refuses blocks, the call can fail after it
  // evicted some; those are free then.)
  [[nodiscard]] Result<MutableBlocks> allocate(std::uint32_t count, TenantId tenant = kDefaultTenant);
  // Also appends the keys of evicted blocks, in the order of eviction.
  [[nodiscard]] Result<MutableBlocks> allocate(std::uint32_t count, TenantId tenant, std::vector<BlockKey>& evicted);

  // The blocks of the keys up to the first miss.
  [[nodiscard]] ImmutableBlocks match_prefix(std::span<const BlockKey> keys);
  // The blocks of all keys that are hits; a key may be there more than once.
  [[nodiscard]] ScatteredMatch match_scattered(std::span<const BlockKey> keys);
  // The same without the positions.
  [[nodiscard]] ImmutableBlocks scan(std::span<const BlockKey> keys);

  // Copying ahead of eviction: claim_victims(), copy them elsewhere, ImmutableBlocks::release_as_victims(). Allocations
  // never wait for the copy.
  //
  // Takes the next `count` blocks that the policy would evict, or as many as there are, and holds them. They can still
  // be matched. This is not a lookup, a use or an eviction, and observers are not called. Free and ready blocks do not
  // count; blocks that may_evict refuses are skipped. With tenants, the tenant furthest beyond its reservation gives
  // first, as if its ready and claimed blocks were gone; tenants within their reservation give last. Returns nothing if
  // the pool was created without low_water.
  [[nodiscard]] ImmutableBlocks claim_victims(std::uint32_t count);
  // How many blocks to claim now: 0 if low_water blocks are free or ready; else what is missing to twice as many, at
  // most what the policy has. Does not count blocks that are claimed already.
  [[nodiscard]] std::uint32_t wanted_victims() const;
  // Changes how many blocks should be free or ready: at least BlockPoolOptions::low_water, at most the capacity. No effect if the
  // pool was created without low_water.
  void set_low_water(std::uint32_t blocks);
  // The largest count that was passed to allocate() since the last call of this function, failed calls included.
  [[nodiscard]] std::uint32_t take_largest_allocation();

  // Lends the bytes of these blocks to a copy, in the order of the keys. Skips misses and blocks that are lent already.
  // This is not a lookup or a use, changes no order, and observers are not called.
  [[nodiscard]] BorrowedBlocks borrow(std::span<const BlockKey> keys);
  // What the pool knows of each key's block; std::nullopt for misses. Changes nothing.
  [[nodiscard]] std::vector<std::optional<PeekedBlock>> peek(std::span<const BlockKey> keys) const;
  // Whether the pool has the block before this one in its sequence. The block itself need not be there.
  [[nodiscard]] bool contains_parent_of(const BlockKey& key) const;

  // Pins the blocks of these keys for a reader that may take long, in the order of the keys; skips misses. This is not
  // a lookup or a use, and observers are not called. When an inactive block is released, it enters the policy anew. If
  // it was ready, it is the last of the ready blocks again, unless a request used it meanwhile.
  [[nodiscard]] PinnedBlocks hold(std::span<const BlockKey> keys);

  // Pins the blocks of the keys up to the first miss, to be copied to a tier above. If the load counts as a use, the
  // policy treats it as a match, a ready block is no longer ready, and on_loaded() is called. Not a lookup: stats() does not change.
  enum class LoadUse : std::uint8_t {
    kCounts,
    kDoesNotCount,  // the caller's lookup counted it, or a lookup of the same load will
  };
  [[nodiscard]] PinnedBlocks pin_prefix(std::span<const BlockKey> keys, LoadUse use);

  // Presence. Changes nothing.
  [[nodiscard]] bool contains(const BlockKey& key) const;
  [[nodiscard]] std::uint32_t count_prefix(std::span<const BlockKey> keys) const;

  // Tells the pool what an engine expects of these blocks, in use or not, and returns how many were found. A hint
  // shifts the order of eviction until it turns out wrong, and pins nothing. kWillNotReturn is ignored
  // for a block that other requests use too. Fails if the pool was created without hints, and on a return in the past.
  [[nodiscard]] Result<std::uint32_t> hint(std::span<const BlockKey> keys, const RetentionHint& hint);

  // The request whose sequence these keys are ended like this; returns how many blocks were found, in use or not. For
  // blocks that are released without the ending (ImmutableBlocks::release()), as copies of a request's blocks in a lower
  // tier. This is not a use.
  std::uint32_t end_request(std::span<const BlockKey> keys, RequestEnding ending);

  // Makes inactive blocks free: those of the keys, or all of them.
  ResetOutcome reset(std::span<const BlockKey> keys);
  std::uint32_t reset_inactive();
  // The bytes of these blocks are wrong: from now on they are not matched. Inactive ones are free at once. Blocks in
  // use stay with their holders, ids and keys unchanged, and are free when the last holder releases them; so are their
  // duplicates. The key can be registered again at once, for another block. Returns how many keys were found.
  std::uint32_t discard(std::span<const BlockKey> keys);

  // A fence: nothing that was registered or allocated before it is found after it.
  //     plan_fence()   allocates the memory; the only step that can fail
  //     raise_fence()  no block is found any more; only its holder knows a block that is registered from now on
  //     lower_fence()  blocks that are allocated from now on can be registered again
  // If the fences of several pools are all raised before the first is lowered, they act as one fence: no copy between
  // those pools gets past it. Blocks in use stay with their holders, unchanged, and are free when the last holder
  // releases them. Raising takes constant time. Blocks that were inactive count as free; allocate() reclaims as many as
  // it needs, reclaim() the others. The eviction policy starts anew.
  [[nodiscard]] Result<PoolFence> plan_fence() const;
  PoolFenceOutcome raise_fence(PoolFence fence);
  void lower_fence();
  // Looks at the next `count` blocks. Returns whether there are more to look at.
  bool reclaim(std::uint32_t count);

  // For a tier that outlives the process: registers blocks that it still has, inactive, as if they had been released in
  // this order (the first is evicted first; of one sequence, leaf first). They get the pool's retention, are charged to
  // the default tenant, and observers see them as new blocks. Fails without any effect if the pool was used
  // before, if a block id is out of range, if a block or a key is given twice, or if the tenant may not have so many.
  [[nodiscard]] Result<void> restore(std::span<const RestoredBlock> blocks);

  [[nodiscard]] std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                            std::vector<ResidentBlock>& out) const override;

  // Looks at `count` blocks from `first` on and appends those that can be matched, `most` at most, by block id. Changes
  // nothing. Returns the block to continue with; capacity() at the end.
  [[nodiscard]] std::uint32_t list_blocks(std::uint32_t first, std::uint32_t count, std::size_t most,
                                          std::vector<ListedBlock>& out) const;

  [[nodiscard]] PoolCounts counts() const;
  [[nodiscard]] PoolStats stats() const;
  [[nodiscard]] Result<TenantUsage> usage(TenantId tenant) const;
  [[nodiscard]] std::uint32_t capacity() const override;
  [[nodiscard]] std::uint32_t block_size() const;
  [[nodiscard]] const KeySeed& seed() const;
  [[nodiscard]] CacheLevel tier() const override;
  // Memory of all metadata.
  [[nodiscard]] std::size_t bytes() const;

  // Aborts if an invariant is broken. For tests; O(capacity).
  void check_invariants() const;

 private:
  explicit BlockPool(std::unique_ptr<internal::PoolState> state);

  std::unique_ptr<internal::PoolState> state_;
};

}  // namespace cairn
