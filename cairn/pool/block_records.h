// BlockRecords: the records of a pool's blocks. Each record holds the state of one block, how many handles reference
// it, and the key and facts of its contents.
//
// A block is free, private (one holder fills it), registered (found under its key), a duplicate of a registered block,
// discarded (in use, but no longer found) or quarantined (a copy may still touch its memory). It knows the free
// blocks and charges each other block to its tenant. A registered block without references is inactive: InactiveBlocks
// holds it then. The KeyIndex finds registered blocks.
//
// Fences: raise_fence() makes every registered block stale at once. Stale blocks in use are discarded when the sweep
// reaches them; stale blocks that nobody uses become free then (unreclaimed() counts them until the sweep comes by).
//
// Invariants, which check_invariants() verifies:
//   R1  a block is in exactly one state, and the free list holds exactly the free blocks
//   R2  a duplicate holds one reference to the block of its key, which is registered, or was until it was discarded
//   R3  each tenant is charged for its blocks that are not free, and the free blocks cover all unused reservations
//   R4  a discarded block and a duplicate have references
//   R5  only blocks in the range that the sweep has still to visit are stale
//   R6  a borrowed block is not free; a block whose eviction was deferred is borrowed and has a reference
//
// Thread safety: none; the lock of the pool guards it. Exception: the holder of a private block writes its key
// and facts without the lock.
// Complexity: O(1) a block. 40 bytes a block, 48 with checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/base/column.h"
#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/class_layout.h"
#include "cairn/pool/tenant_ledger.h"

namespace cairn {

class BlockRecords {
 public:
  enum class State : std::uint8_t { kFree = 0, kPrivate, kRegistered, kDuplicate, kQuarantined, kDiscarded };

  [[nodiscard]] static Result<BlockRecords> create(const BlockPoolOptions& options);

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint32_t free_count() const { return free_; }
  [[nodiscard]] std::uint32_t quarantined_count() const { return quarantined_; }
  [[nodiscard]] std::uint32_t borrowed_count() const { return borrowed_; }
  [[nodiscard]] std::uint32_t deferred_count() const { return deferred_; }
  // Blocks from here on were never used.
  [[nodiscard]] std::uint32_t used_end() const { return used_end_; }
  [[nodiscard]] std::size_t bytes() const { return records_.bytes() + tokens_hashes_.bytes() + checksums_.bytes(); }
  [[nodiscard]] const TenantLedger& tenants() const { return tenants_; }
  [[nodiscard]] TenantLedger& tenants() { return tenants_; }
  [[nodiscard]] const ClassLayout& classes() const { return classes_; }

  // One block.
  [[nodiscard]] const BlockKey& key(BlockId block_id) const { return at(block_id).key; }
  [[nodiscard]] State state(BlockId block_id) const { return at(block_id).state; }
  [[nodiscard]] bool is_in_use(BlockId block_id) const { return at(block_id).references > 0; }
  [[nodiscard]] std::uint32_t references(BlockId block_id) const { return at(block_id).references; }
  [[nodiscard]] bool is_borrowed(BlockId block_id) const { return at(block_id).is_borrowed; }
  // Registered, and no fence was raised since.
  [[nodiscard]] bool is_matchable(BlockId block_id) const {
    return at(block_id).state == State::kRegistered && is_current(at(block_id));
  }
  [[nodiscard]] bool is_inactive(BlockId block_id) const { return is_matchable(block_id) && !is_in_use(block_id); }
  // Whether others can find the block, or could once its holder registers it. Of a duplicate: the block of its key.
  [[nodiscard]] bool is_current(BlockId block_id) const;
  [[nodiscard]] TenantId tenant_of(BlockId block_id) const { return classes_.tenant_of(at(block_id).eviction_class); }
  [[nodiscard]] std::uint32_t priority_of(BlockId block_id) const {
    return classes_.priority_of(at(block_id).eviction_class);
  }
  [[nodiscard]] EvictionClass& eviction_class(BlockId block_id) { return at(block_id).eviction_class; }
  // The block that is registered under the key: the block itself, unless it is a duplicate.
  [[nodiscard]] BlockId registered_as(BlockId block_id) const {
    return at(block_id).state == State::kDuplicate ? at(block_id).link : block_id;
  }
  [[nodiscard]] ResidentBlock resident(BlockId block_id) const;
  [[nodiscard]] BlockFacts facts(BlockId block_id) const;
  void prefetch(BlockId block_id) const { __builtin_prefetch(&at(block_id), 1); }
  // Of a ready block: its parent if leaves go first, else kNoBlock. InactiveBlocks sets it.
  [[nodiscard]] BlockId& ready_parent(BlockId block_id) { return at(block_id).link; }
  [[nodiscard]] BlockId ready_parent(BlockId block_id) const { return at(block_id).link; }
  [[nodiscard]] Column<BlockKey> key_column() const { return {&records_.data()->key, sizeof(Record)}; }
  [[nodiscard]] Column<EvictionClass> class_column() const {
    return {&records_.data()->eviction_class, sizeof(Record)};
  }

  // Free and private blocks.
  // Takes a block from the free list; the caller charges a tenant for it. Requires: free_count() > 0.
  [[nodiscard]] BlockId take_free();
  // The blocks, taken from the free list or evicted, belong to a holder that fills them for the tenant.
  void make_private(std::span<const BlockId> block_ids, TenantId tenant);
  // The block has no holder left. If it is borrowed, it is quarantined until it is returned.
  void make_free(BlockId block_id);
  // Gives private blocks their keys and facts, without a lock. Fails unless there is one entry for each block.
  [[nodiscard]] Status complete(std::span<const BlockId> block_ids, const BlockNames& names);
  [[nodiscard]] Status complete(std::span<const BlockId> block_ids, std::span<const BlockFacts> facts);
  void quarantine(std::span<const BlockId> block_ids);
  void release_quarantined(std::span<const BlockId> block_ids);

  // Registration. Each gives a private block one reference.
  // Whether the block may be registered: no fence was raised or up since it was allocated.
  [[nodiscard]] bool is_registrable(BlockId block_id) const { return at(block_id).references == fence_; }
  void make_registered(BlockId block_id);
  void make_duplicate(BlockId block_id, BlockId original);
  void make_discarded(BlockId block_id);
  // A registered block in use that lost its key.
  void discard(BlockId block_id) { at(block_id).state = State::kDiscarded; }
  // Sets the parent of a block that was completed without one; `parent` may be kNoBlock.
  void set_unknown_parent(BlockId block_id, BlockId parent);
  [[nodiscard]] bool knows_parent(BlockId block_id) const { return at(block_id).parent_high != kParentUnknown; }
  void set_reset_on_release(BlockId block_id, bool reset);

  // Blocks that a tier still has from before the process started. Requires: no block was used yet.
  void set_restored_key(BlockId block_id, const BlockKey& key) { at(block_id).key = key; }
  // Makes them registered and inactive, and charges the default tenant. Requires: their keys are set.
  void restore(std::span<const RestoredBlock> blocks);

  // References of registered blocks, duplicates and discarded blocks.
  // Returns whether the block had no reference.
  [[gnu::always_inline]] bool add_reference(BlockId block_id) { return at(block_id).references++ == 0; }
  // Returns the registered block that nobody uses any more, or kNoBlock. Frees duplicates, discarded and stale blocks
  // that lose their last reference.
  [[nodiscard]] BlockId drop_reference(BlockId block_id) {
    Record& record = at(block_id);
    if (--record.references > 0) {
      return kNoBlock;
    }
    return record.state == State::kRegistered && is_current(record) ? block_id : drop_unmatchable(block_id);
  }
  // Whether a registered block becomes free, not inactive, when nobody uses it any more.
  [[nodiscard]] bool resets_on_release(BlockId block_id) const {
    return (at(block_id).fence_mark & kResetOnRelease) != 0;
  }

  // Loans: a copy reads the memory of the block.
  void lend(BlockId block_id);
  // A borrowed block that was to be evicted: the loan holds a reference to it until it ends.
  void defer_eviction(BlockId block_id);
  // Returns whether the eviction of the block was deferred: the caller drops the loan's reference. A block that lost
  // its contents meanwhile becomes free.
  [[nodiscard]] bool end_loan(BlockId block_id);

  // Fences, as BlockPool documents them. `inactive` blocks are registered and have no references.
  void raise_fence(std::uint32_t inactive);
  void lower_fence() { allocation_fence_ = fence_; }
  // Stale blocks that nobody uses and that are not free yet.
  [[nodiscard]] std::uint32_t unreclaimed() const { return unreclaimed_; }
  // Looks at the next `count` blocks and reclaims those that are stale. Returns whether there are more to look at.
  bool sweep(std::uint32_t count);
  // Sweeps until the tenant can take `count` blocks from the free list, or nothing is left to reclaim.
  void sweep_for(std::uint32_t count, TenantId tenant);

  void check_invariants() const;

 private:
  static constexpr std::uint32_t kParentUnknown = 0xFFFFFFFF;  // a known parent has at most 26 bits here
  static constexpr std::uint8_t kResetOnRelease = 1;
  static constexpr std::uint32_t kFenceMarks = 128;  // fences that a mark can tell apart

  struct Record {
    BlockKey key;
    std::uint32_t references;   // of a private block: the fence when it was allocated, 0 if that was up
    BlockId link;               // free: the next free block; duplicate: the block of its key; ready: its parent
    std::uint32_t parent_high;  // the parent's sequence hash above the bits that the key holds of it
    EvictionClass eviction_class;
    State state : 6;
    bool is_borrowed : 1;
    bool is_deferred : 1;
    std::uint8_t fence_mark;  // of a registered block: fence_mark_ when it was registered, and kResetOnRelease
  };
  static_assert(sizeof(Record) == 32);

  BlockRecords(const BlockPoolOptions& options, TenantLedger tenants, PageArray<Record> records,
               PageArray<BlockHash> tokens_hashes, PageArray<std::uint64_t> checksums);

  [[nodiscard]] Record& at(BlockId block_id) { return records_[index_of(block_id)]; }
  [[nodiscard]] const Record& at(BlockId block_id) const { return records_[index_of(block_id)]; }
  [[nodiscard]] bool is_current(const Record& record) const {
    return (record.fence_mark | kResetOnRelease) == (fence_mark_ | kResetOnRelease);
  }
  [[nodiscard]] std::uint8_t new_mark() const {
    return static_cast<std::uint8_t>(fence_mark_ | (reset_on_release_ ? kResetOnRelease : 0));
  }
  [[nodiscard]] BlockId drop_unmatchable(BlockId block_id);

  const std::uint32_t capacity_;
  const bool reset_on_release_;
  ClassLayout classes_;
  TenantLedger tenants_;
  PageArray<Record> records_;
  PageArray<BlockHash> tokens_hashes_;
  PageArray<std::uint64_t> checksums_;  // empty if the pool keeps none
  BlockId first_free_ = kNoBlock;
  std::uint32_t used_end_ = 0;  // blocks from here on are free and in no list
  std::uint32_t free_;
  std::uint32_t quarantined_ = 0;
  std::uint32_t borrowed_ = 0;
  std::uint32_t deferred_ = 0;
  std::uint32_t fence_ = 1;             // the number of the latest fence
  std::uint32_t allocation_fence_ = 1;  // fence_, or 0 while the fence is up
  std::uint8_t fence_mark_ = 1 << 1;    // the low bits of fence_, above kResetOnRelease
  std::uint32_t unreclaimed_ = 0;
  std::uint32_t sweep_begin_ = 0;  // stale blocks are in [sweep_begin_, sweep_end_)
  std::uint32_t sweep_end_ = 0;
  std::uint32_t fences_unswept_ = 0;
};

}  // namespace cairn
