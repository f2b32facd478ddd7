// BlockPool: a fixed number of block blocks in one tier, with prefix reuse. Lookup, allocation, registration, eviction.
//
// Does:     decides which block holds which block; knows nothing of bytes. A block is free, private to whoever allocated
//           it, active (registered and referenced), inactive (registered and evictable) or quarantined.
// Owner:    whoever created it; destroyed after every handle it gave out (checked).
// Threads:  every call is safe from any thread. One mutex; each call takes it once, however many blocks it is about.
// Costs:    no call allocates memory once the pool has been in use for a while, except where it returns a vector.
// Fails:    create() on options that make no sense, by name; allocate() when there is no room.
// Not promised: which block a block gets.
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
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/retention_hint.h"
#include "cairn/hash/key_seed.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

enum class Duplicates : std::uint8_t {
  kReject,  // one physical block a key: the late one goes back
  kAllow,   // several physical copies, one logical block
};

// What a tenant of a shared pool may have. Blocks are charged to whoever allocated them until they are free again.
struct TenantQuota {
  std::string name;
  std::uint32_t reserved = 0;               // always to be had, whatever the others hold
  std::optional<std::uint32_t> limit = {};  // never more than this; none: the whole pool
};

struct BlockPoolOptions {
  std::uint32_t capacity = 0;    // blocks
  std::uint32_t block_size = 0;  // tokens a block
  CacheLevel tier = CacheLevel::kG1;
  PolicyKind policy = PolicyKind::kAdaptive;  // see docs/decisions/0007-adaptive-is-the-default.md
  bool leaves_first = false;                  // no block goes before those below it, whatever the policy
  Duplicates duplicates = Duplicates::kReject;
  bool reset_on_release = false;  // blocks become free, not evictable, when the last holder lets go
  Retention retention = {};       // of blocks registered without one of their own
  bool time_to_live = false;      // whether blocks may be given one, or a priority for a time; costs 36 bytes a block
  bool hints = false;             // whether hint() can be used; costs 52 bytes a block, those 36 included
  bool notes = false;             // whether blocks keep the notes they are given; costs 8 bytes a block
  std::vector<TenantQuota> tenants = {};  // none: one tenant with the whole pool
  const Clock* clock = nullptr;           // none: the machine's; outlives the pool
  // Of what the policy and the hints remember of keys. None: random. A simulation gives one to get the same victims again.
  std::optional<KeySeed> seed = {};
  std::vector<PoolObserver*> observers = {};  // told in this order; outlive the pool
  // Asked before a block is evicted, under the pool's lock: false keeps it for now. Must not call the pool.
  std::function<bool(BlockId, const BlockKey&)> may_evict = {};
  // Blocks that are to be free or ready to go at any time, so that they can be copied elsewhere before they are evicted:
  // see claim_victims(). At most the capacity; 0: the pool keeps none ready. Costs 12 bytes a block. set_low_water()
  // raises it while the pool works.
  std::uint32_t low_water = 0;
  // Called by each allocate() that leaves fewer than that, while the policy has more to give. Under the pool's lock: must
  // not call the pool, returns soon, and takes no locks but those of a higher rank.
  std::function<void()> when_low = {};
};

// free + inactive + active + quarantined = total, always.
struct PoolCounts {
  std::uint32_t total = 0;
  std::uint32_t free = 0;
  std::uint32_t inactive = 0;
  std::uint32_t active = 0;  // private ones included
  std::uint32_t quarantined = 0;
  std::uint32_t registered = 0;  // distinct keys that can be matched
  std::uint32_t pinned = 0;      // references held by PinnedBlocks
  std::uint32_t ready = 0;       // of the inactive ones, those that go first: ImmutableBlocks::release_as_victims()
  std::uint32_t borrowed = 0;    // of the inactive ones, those that cannot be evicted while a copy reads them
  [[nodiscard]] std::uint32_t available() const { return free + inactive - borrowed; }

  friend bool operator==(const PoolCounts&, const PoolCounts&) = default;
};

// Since the pool was created.
struct PoolStats {
  std::uint64_t allocated = 0;            // blocks given out to be filled
  std::uint64_t allocation_failures = 0;  // calls
  std::uint64_t evicted = 0;
  std::uint64_t expired = 0;
  std::uint64_t reset = 0;
  std::uint64_t discarded = 0;
  std::uint64_t registered = 0;
  std::uint64_t deduplicated = 0;  // late copies given back
  std::uint64_t duplicated = 0;    // late copies kept
  std::uint64_t lookups = 0;       // keys asked for
  std::uint64_t hits = 0;          // of those, found
  std::uint64_t abandoned_in_quarantine = 0;
};

struct TenantUsage {
  std::uint32_t used = 0;      // blocks charged to the tenant
  std::uint32_t inactive = 0;  // of those, evictable
};

// One entry for each key that was asked for.
struct ScatteredMatch {
  ImmutableBlocks blocks;                              // those found, in the order of the keys
  std::vector<std::optional<std::uint32_t>> position;  // of each key's block in `blocks`
};

struct ResetOutcome {
  std::uint32_t reset = 0;
  std::uint32_t not_found = 0;
  std::uint32_t in_use = 0;  // left alone
};

namespace internal {
struct FreshTables;
}  // namespace internal

// The memory that a fence needs, taken before anything changes; see BlockPool::plan_fence().
class PoolFence {
 public:
  explicit PoolFence(std::unique_ptr<internal::FreshTables> fresh);
  PoolFence(PoolFence&&) noexcept;
  PoolFence& operator=(PoolFence&&) noexcept;
  ~PoolFence();

 private:
  friend class BlockPool;
  std::unique_ptr<internal::FreshTables> fresh_;
};

struct PoolFenceOutcome {
  std::uint32_t dropped = 0;  // blocks that nobody used
  std::uint32_t in_use = 0;   // blocks that stay with their holders, and are not found any more
};

// A block that a tier still has from before the process started.
struct RestoredBlock {
  BlockId block_id;
  BlockKey key;
  BlockHash tokens_hash{0};
  std::uint64_t note = 0;  // where the pool keeps notes
};

// A block that can be matched, and the block that holds it.
struct ListedBlock {
  BlockId block_id = kNoBlock;
  BlockFacts facts;
};

// What peek() sees of a block.
struct PeekedBlock {
  BlockFacts facts;
  std::optional<BlockKey> parent;  // of the block before it in its sequence, if the pool has that
  bool in_use = false;
};

class BlockPool final : public ResidentSource {
 public:
  [[nodiscard]] static Result<std::unique_ptr<BlockPool>> create(const BlockPoolOptions& options);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool() override;

  // Blocks to be filled: free ones first, then those that are ready to go, then victims of the policy. All or nothing: ErrorCode::kExhausted where there
  // are too few. (A may_evict that refuses can make it fail after some were evicted; those are free then.)
  [[nodiscard]] Result<MutableBlocks> allocate(std::uint32_t count, TenantId tenant = kDefaultTenant);
  // The same, and appends the keys that had to go, in the order of eviction.
  [[nodiscard]] Result<MutableBlocks> allocate(std::uint32_t count, TenantId tenant, std::vector<BlockKey>& evicted);

  // The blocks of the longest run of keys from the first that are all there.
  [[nodiscard]] ImmutableBlocks match_prefix(std::span<const BlockKey> keys);
  // Each key for itself; the same one may stand there more than once.
  [[nodiscard]] ScatteredMatch match_scattered(std::span<const BlockKey> keys);
  // All that are there, misses passed over.
  [[nodiscard]] ImmutableBlocks scan(std::span<const BlockKey> keys);

  // Copying ahead of eviction: claim_victims(), copy them elsewhere, ImmutableBlocks::release_as_victims(). Nobody who
  // allocates waits for it.
  //
  // The next `count` blocks that the policy would give up, in its order, or as many as there are: taken from it and held.
  // They can be matched as before. It is no lookup, no use and no eviction, and observers are not told. Free blocks and
  // those that are ready already do not matter; blocks that may_evict refuses are passed over. With tenants, the one
  // furthest beyond its reservation gives, as if what is ready or claimed by this call had left it; those within theirs
  // give last. A pool without low_water has none to give.
  [[nodiscard]] ImmutableBlocks claim_victims(std::uint32_t count);
  // How many to claim now: 0 where low_water blocks are free or ready; else what is missing to twice as many, at most
  // what the policy has. Knows nothing of those that are claimed already.
  [[nodiscard]] std::uint32_t wanted_victims() const;
  // So many blocks are to be free or ready from now on: at least the pool's own low_water, at most its capacity. Without
  // effect if the pool was created without low_water.
  void set_low_water(std::uint32_t blocks);
  // The low_water that the pool was created with.
  [[nodiscard]] std::uint32_t least_low_water() const;
  // The most blocks that one allocate() was asked for since the last call of this, whether or not it got them.
  [[nodiscard]] std::uint32_t take_largest_allocation();

  // Lends the bytes of these blocks to a copy, in the order of the keys; keys that are not there, or are lent already,
  // are passed over. It is no lookup and no use, changes no order, and observers are not told.
  [[nodiscard]] BorrowedBlocks borrow(std::span<const BlockKey> keys);
  // What is known of the blocks, one entry for each key; nothing is taken or touched.
  [[nodiscard]] std::vector<std::optional<PeekedBlock>> peek(std::span<const BlockKey> keys) const;
  // Whether the pool has the block before this one in its sequence, whether or not it has this one.
  [[nodiscard]] bool contains_parent_of(const BlockKey& key) const;

  // For a reader that may take its time: pins the blocks that are there, misses passed over, in the order of the keys. It is no
  // lookup and no use, and observers are not told. An inactive block enters the policy anew when it is let go; one that
  // was ready to go is ready again, the last of them, unless somebody used it meanwhile.
  [[nodiscard]] PinnedBlocks hold(std::span<const BlockKey> keys);

  // Presence, without taking or touching anything.
  [[nodiscard]] bool contains(const BlockKey& key) const;
  [[nodiscard]] std::uint32_t count_prefix(std::span<const BlockKey> keys) const;

  // What is known of the blocks of these keys, in use or not: shifts when they are evicted, for as long as it is not
  // shown to be wrong (hint_book.h), and holds nothing. The number of blocks found. A block that others use as well is
  // not said to be unwanted. Fails where the pool was not created with hints, and on a return before now.
  [[nodiscard]] Result<std::uint32_t> hint(std::span<const BlockKey> keys, const RetentionHint& hint);

  // Makes inactive blocks free: those of the keys, or all of them.
  ResetOutcome reset(std::span<const BlockKey> keys);
  std::uint32_t reset_inactive();
  // The bytes of these blocks are wrong: from this call on they are not matched, whoever holds them. Unused ones are free
  // at once. Those in use stay with their holders, blocks and keys unchanged, and are free when the last one lets go, never
  // evictable again; with duplicates that is so of every copy. The key can be registered anew at once: that is another
  // block. The number of keys found.
  std::uint32_t discard(std::span<const BlockKey> keys);

  // A fence: nothing that was registered before it, or allocated before it, is ever found after it.
  //     plan_fence()   takes the memory that raising takes; the only step that can fail
  //     raise_fence()  no block can be found any more, and what is registered from now on is known to its holder alone
  //     lower_fence()  blocks that are allocated from now on can be registered again
  // Between raise and lower the pool is empty for everybody: fences of several pools that are all raised before the first
  // is lowered are one fence, which no copy between those pools gets past.
  // Blocks in use stay with their holders, unchanged, and are free when the last one lets go of them. Raising takes the same
  // time whatever the pool holds: blocks of blocks that nobody used are reclaimed by allocate() as far as it needs them, and
  // by reclaim(). They count as free. The eviction policy begins anew.
  [[nodiscard]] Result<PoolFence> plan_fence() const;
  PoolFenceOutcome raise_fence(PoolFence fence);
  void lower_fence();
  // Looks at so many blocks; whether there are more to look at.
  bool reclaim(std::uint32_t count);

  // For a tier that outlives the process: these blocks hold these blocks, unused, as if they had been released in this
  // order, the first to go first (leaf first, where they are of one sequence). They have the pool's retention, are charged
  // to the default tenant, and observers are told of them as of new ones. Fails, and changes nothing, on a pool that was
  // used before, a block it does not have, a block or a key that stands there twice, and more than the tenant may have.
  [[nodiscard]] Result<void> restore(std::span<const RestoredBlock> blocks);

  [[nodiscard]] std::uint32_t list_resident(std::uint32_t first, std::uint32_t count,
                                            std::vector<ResidentBlock>& out) const override;

  // Appends the blocks that can be matched of `blocks` blocks from `first` on, `most` of them, in the order of their blocks.
  // Takes and touches nothing. The block after the last one that was looked at; the capacity if there is none.
  [[nodiscard]] std::uint32_t list_blocks(std::uint32_t first, std::uint32_t count, std::size_t most,
                                          std::vector<ListedBlock>& out) const;

  [[nodiscard]] PoolCounts counts() const;
  [[nodiscard]] PoolStats stats() const;
  [[nodiscard]] Result<TenantUsage> usage(TenantId tenant) const;
  [[nodiscard]] std::uint32_t capacity() const override;
  [[nodiscard]] std::uint32_t block_size() const;
  [[nodiscard]] const KeySeed& seed() const;
  [[nodiscard]] CacheLevel tier() const override;
  // Memory for metadata, everything included.
  [[nodiscard]] std::size_t bytes() const;

  // Walks everything and aborts on the first invariant that does not hold. For tests; O(capacity).
  void check_invariants() const;

 private:
  explicit BlockPool(std::unique_ptr<SlotTable> table);

  std::unique_ptr<SlotTable> table_;
};

}  // namespace cairn
