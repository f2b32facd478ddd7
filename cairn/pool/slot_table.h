// SlotTable: the one authority on the state of every block of a pool. What the handles and BlockPool stand on.
//
// Does:     blocks and keys in, blocks and keys out; tells the observers under its lock, in the order of the facts.
// Owner:    one BlockPool. Destroyed when every handle is gone (checked).
// Threads:  every call is safe from any thread; one mutex, rank kPool, taken once a call. Reference counts are plain
//           integers that change only under it, so that the last reference dies under the lock (design, rule 4).
// Invariants:
//   I1  a block is in exactly one state; the free list is exactly the kFree ones
//   I2  the index maps a key to block s  iff  s is kRegistered under that key
//   I3  a registered block is held by the policy or ready to go, not both,  iff  its reference count is 0; it is inactive
//       then
//   I4  a duplicate holds one reference to the block of its key, which is registered, or was until it was discarded
//   I5  free + inactive + active + quarantined = total, and each tenant is charged for the blocks that are not free
//   I6  the free blocks cover all reservations that are not used yet
//   I7  a discarded block is referenced, and in neither the index nor the policy
//   I8  a block that was registered before the latest fence is in neither the index nor the policy; it is free or discarded
//       once the sweep has passed it. Until then it counts as registered in no other invariant.
//   I9  a borrowed block is not free; one that was set aside is borrowed and referenced
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/hint_book.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/key_index.h"
#include "cairn/pool/ready_queue.h"
#include "cairn/pool/retention_clock.h"
#include "cairn/pool/run_buffers.h"
#include "cairn/pool/tenant_ledger.h"

namespace cairn {

namespace internal {

// In which order a table's blocks go.
struct BlockOrder {
  std::unique_ptr<EvictionPolicy> policy;
  std::optional<ReadyQueue> ready = {};
  std::optional<RetentionClock> retention_clock = {};
  std::optional<HintBook> hints = {};
};

// What takes the place of a table's own when a fence is raised.
struct FreshTables {
  KeyIndex index;
  BlockOrder order;
};

}  // namespace internal

class SlotTable final : private ParentFinder {
 public:
  using Run = internal::Run;

  [[nodiscard]] static Result<std::unique_ptr<SlotTable>> create(const BlockPoolOptions& options);
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;
  ~SlotTable() override;

  // Behind BlockPool, as documented there.
  [[nodiscard]] Result<Run> allocate(std::uint32_t count, TenantId tenant, std::vector<BlockKey>* evicted);
  [[nodiscard]] Run match_prefix(std::span<const BlockKey> keys);
  // `position` may be null: a scan.
  [[nodiscard]] Run match_scattered(std::span<const BlockKey> keys,
                                    std::vector<std::optional<std::uint32_t>>* position);
  [[nodiscard]] Run claim_victims(std::uint32_t count);
  [[nodiscard]] std::uint32_t wanted_victims();
  void set_low_water(std::uint32_t blocks);
  [[nodiscard]] std::uint32_t take_largest_allocation();
  [[nodiscard]] Run borrow(std::span<const BlockKey> keys);
  [[nodiscard]] std::vector<std::optional<PeekedBlock>> peek(std::span<const BlockKey> keys);
  [[nodiscard]] bool contains_parent_of(const BlockKey& key);
  [[nodiscard]] Run hold(std::span<const BlockKey> keys);
  [[nodiscard]] std::uint32_t count_prefix(std::span<const BlockKey> keys);
  [[nodiscard]] Result<std::uint32_t> hint(std::span<const BlockKey> keys, const RetentionHint& hint);
  ResetOutcome reset(std::span<const BlockKey> keys);
  std::uint32_t reset_inactive();
  std::uint32_t discard(std::span<const BlockKey> keys);
  [[nodiscard]] Result<internal::FreshTables> make_fresh_tables() const;
  // `fresh` holds what it replaced afterwards, to be freed without the lock.
  PoolFenceOutcome raise_fence(internal::FreshTables& fresh);
  void lower_fence();
  bool reclaim(std::uint32_t count);
  [[nodiscard]] Status restore(std::span<const RestoredBlock> blocks);
  [[nodiscard]] std::uint32_t list_resident(std::uint32_t first, std::uint32_t count, std::vector<ResidentBlock>& out);
  [[nodiscard]] std::uint32_t list_blocks(std::uint32_t first, std::uint32_t count, std::size_t most,
                                          std::vector<ListedBlock>& out);
  [[nodiscard]] PoolCounts counts();
  [[nodiscard]] PoolStats stats();
  [[nodiscard]] Result<TenantUsage> usage(TenantId tenant);
  [[nodiscard]] const BlockPoolOptions& options() const { return options_; }
  [[nodiscard]] const KeySeed& seed() const { return options_.seed ? *options_.seed : KeySeed::of_process(); }
  [[nodiscard]] std::size_t bytes();
  void check_invariants();

  // Behind the handles. A run is of this table; what it holds follows from the handle around it.
  [[nodiscard]] Status complete(Run& run, const BlockNames& names);
  [[nodiscard]] Status complete(Run& run, std::span<const BlockFacts> facts);
  [[nodiscard]] std::vector<BlockFacts> facts(const Run& run);
  [[nodiscard]] Status register_run(Run& run, const Retention& retention, std::span<const Token> tokens);
  [[nodiscard]] std::optional<Run> match_all(std::span<const BlockKey> keys);
  [[nodiscard]] Run share(const Run& run, std::uint32_t count);
  [[nodiscard]] Run share_pinned(const Run& run);
  [[nodiscard]] Run split_front(Run& run, std::uint32_t count);
  void append(Run& run, Run& other);
  [[nodiscard]] Status set_retention(const Run& run, const Retention& retention);
  void set_reset_on_release(const Run& run, bool reset);
  void release_private(Run& run);
  void release(Run& run);
  void release_tail(Run& run, std::uint32_t count);
  void release_pinned(Run& run);
  void give_back(Run& run);
  void release_as_victims(Run& run);
  void quarantine(const Run& run);
  void release_quarantined(Run& run);
  void abandon_quarantined(Run& run);
  // No fence was raised since the blocks were allocated (private ones), or registered.
  [[nodiscard]] bool is_current(const Run& run);
  [[nodiscard]] BlockKey key(BlockId block_id) const { return records_[index_of(block_id)].key; }
  // WeakBlocks that know this table. Relaxed: the count orders nothing; who destroys the pool has seen them go.
  void weak_made() { weak_.fetch_add(1, std::memory_order_relaxed); }
  void weak_gone() { weak_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  enum class State : std::uint8_t { kFree = 0, kPrivate, kRegistered, kDuplicate, kQuarantined, kDiscarded };
  static constexpr std::size_t kStates = 6;
  static constexpr std::uint32_t kPriorities = Retention::kMaxPriority + 1;
  static constexpr std::uint32_t kParentUnknown = 0xFFFFFFFF;  // beyond the key's fragment

  struct Record {
    BlockKey key;
    std::uint32_t references;  // of a registered block or a duplicate; private: the stamp_ of its allocation
    BlockId
        link;  // free: the next free block; duplicate: the block of its key; ready: its parent's, where leaves go first
    std::uint32_t parent_high;     // the parent's sequence hash above the bits that the key holds of it
    EvictionClass eviction_class;  // tenant, priority and, where there are hints, their level
    State state : 6;
    bool is_borrowed : 1;   // a copy reads its memory
    bool is_set_aside : 1;  // its turn to go came meanwhile: the loan has a reference to it, and it is ready at its end
    std::uint8_t mark;      // of a registered block: mark_ when it was registered, and kResetOnRelease
  };
  static_assert(sizeof(Record) == 32);
  static constexpr std::uint8_t kResetOnRelease = 1;
  static constexpr std::uint32_t kMarks = 128;  // fences that a mark can tell apart

  SlotTable(const BlockPoolOptions& options, PageArray<Record> records, PageArray<BlockHash> tokens_hashes,
            KeyIndex index, TenantLedger tenants);
  [[nodiscard]] Result<internal::BlockOrder> make_order() const;

  [[nodiscard]] Record& at(BlockId block_id) { return records_[index_of(block_id)]; }
  [[nodiscard]] const Record& at(BlockId block_id) const { return records_[index_of(block_id)]; }
  [[nodiscard]] TenantId tenant_of(const Record& block_id) const {
    return TenantId{static_cast<std::uint8_t>((index_of(block_id.eviction_class) >> level_bits_) / kPriorities)};
  }
  [[nodiscard]] std::uint32_t priority_of(const Record& block_id) const {
    return (index_of(block_id.eviction_class) >> level_bits_) % kPriorities;
  }
  [[nodiscard]] EvictionClass class_of(TenantId tenant, std::uint32_t priority, HintLevel level = kNormalLevel) const {
    const std::uint32_t without_level = index_of(tenant) * kPriorities + priority;
    return EvictionClass{static_cast<std::uint16_t>((without_level << level_bits_) | (level_bits_ == 0 ? 0 : level))};
  }
  [[nodiscard]] static std::uint32_t class_count(const BlockPoolOptions& options, std::uint32_t tenants) {
    return (tenants * kPriorities) << level_bits(options);
  }
  [[nodiscard]] static std::uint32_t level_bits(const BlockPoolOptions& options) { return options.hints ? 4 : 0; }
  static_assert(kHintLevels == 1 << 4);
  [[nodiscard]] SequenceHash parent_of(const Record& block_id) const;
  [[nodiscard]] std::uint32_t parent_high(const BlockKey& child, BlockId parent) const;
  [[nodiscard]] ResidentBlock resident(BlockId block_id) const;
  [[nodiscard]] BlockFacts facts_of(BlockId block_id) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] BlockId find_parent(const BlockKey& child) const override { return index_.find_parent(child); }
  [[nodiscard]] Status check_retention(const Retention& retention) const;
  [[nodiscard]] Status check_distinct_keys(const Run& run) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] ClassRange classes_of(TenantId tenant) const;
  [[nodiscard]] ClassRange all_classes() const CAIRN_REQUIRES(mutex_) {
    return {0, class_count(options_, tenants_.tenant_count())};
  }

  // Where the index looks for a group of keys.
  class Located {
   public:
    static constexpr std::size_t kGroup = 128;
    // The first group of them; the others follow as find_each() gets there.
    Located(const SlotTable& table, std::span<const BlockKey> keys);
    void locate(const SlotTable& table, std::span<const BlockKey> keys);
    KeyIndex::Place operator[](std::size_t i) const { return places_[i]; }

   private:
    KeyIndex::Place places_[kGroup];
  };
  // Calls visit(i, the block of keys[i] or kNoBlock) for one key after the other until it answers false.
  template <typename Visit>
  void find_each(std::span<const BlockKey> keys, Located& located, Visit visit) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Run new_run(std::uint32_t capacity) CAIRN_REQUIRES(mutex_);
  void make_room(std::uint32_t blocks) CAIRN_REQUIRES(mutex_);
  void make_room_for_removal() CAIRN_REQUIRES(mutex_);
  void end_run(Run& run) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Run share_locked(const Run& run, std::uint32_t count) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] BlockId take_free() CAIRN_REQUIRES(mutex_);
  void let_go_as_victims(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  void let_go_in_pieces(std::span<const BlockId> block_ids) CAIRN_EXCLUDES(mutex_);
  void make_free(BlockId block_id) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Status gather(Run& run, std::uint32_t count, TenantId tenant) CAIRN_REQUIRES(mutex_);
  void unname_collected() CAIRN_REQUIRES(mutex_);
  void unname(BlockId block_id, KeyIndex::Place place) CAIRN_REQUIRES(mutex_);
  // What has fallen due: blocks whose time is over go, others change their places.
  void expire_due() CAIRN_REQUIRES(mutex_);
  void set_level(BlockId block_id, TimePoint now) CAIRN_REQUIRES(mutex_);
  void note_evicted(std::span<const BlockId> block_ids, TenantId tenant) CAIRN_REQUIRES(mutex_);
  // One reference less: the block that is in no use any more and to be inactive, if any.
  [[nodiscard]] BlockId let_go(BlockId block_id) CAIRN_REQUIRES(mutex_);
  void let_go_for_good(BlockId block_id) CAIRN_REQUIRES(mutex_);
  // No fence was raised since the block was registered.
  [[nodiscard]] bool is_current(const Record& block_id) const CAIRN_REQUIRES(mutex_) {
    return (block_id.mark | kResetOnRelease) == (mark_ | kResetOnRelease);
  }
  void sweep(std::uint32_t count) CAIRN_REQUIRES(mutex_);
  void reclaim_for(std::uint32_t count, TenantId tenant) CAIRN_REQUIRES(mutex_);
  // Between inactive and active; the reference counts are the caller's matter.
  void activate(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  void deactivate(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  // The part of it that does not depend on where the blocks stand while they are inactive.
  void wake(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  void lay_down(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  // Of those that are ready to go.
  [[nodiscard]] std::uint32_t ready_count() const CAIRN_REQUIRES(mutex_) { return ready_ ? ready_->size() : 0; }
  void make_ready(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  void unready(BlockId block_id) CAIRN_REQUIRES(mutex_);
  void take_out(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  // Of those that are borrowed.
  [[nodiscard]] std::size_t evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] BlockId evict(ClassRange classes, const Veto& veto) CAIRN_REQUIRES(mutex_) {
    BlockId block_id = kNoBlock;
    return evict(classes, veto, {&block_id, 1}) == 1 ? block_id : kNoBlock;
  }
  void set_aside(BlockId block_id) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t count_borrowed(std::span<const BlockId> block_ids) const CAIRN_REQUIRES(mutex_);
  void put_back(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool must_wait(BlockId block_id) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::size_t take_ready(TenantId tenant, std::span<BlockId> out) CAIRN_REQUIRES(mutex_);
  void note_used(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  void leave_ready(BlockId block_id) CAIRN_REQUIRES(mutex_);
  void reclass(BlockId block_id, EvictionClass to) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::size_t claim_from_tenants(std::span<BlockId> out) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::size_t give_up(TenantId tenant, std::span<BlockId> out) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] BlockId give_up_any() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] const Veto& eviction_veto() const CAIRN_REQUIRES(mutex_) {
    return ready_count() > 0 && policy_->leaves_first() ? veto_beside_ready_ : veto_;
  }
  void call_when_low() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Status enter_restored(std::span<const RestoredBlock> blocks) CAIRN_REQUIRES(mutex_);
  void tell_restored(std::span<const RestoredBlock> blocks) CAIRN_REQUIRES(mutex_);
  void release_references(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] BlockId* scratch(std::size_t count) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool register_one(BlockId& block_id, KeyIndex::Place place, const Retention& retention)
      CAIRN_REQUIRES(mutex_);
  [[nodiscard]] BlockId named_block(BlockId block_id) const;
  void apply_retention(BlockId block_id, const Retention& retention) CAIRN_REQUIRES(mutex_);
  void raise_priority(BlockId block_id, const Retention& retention) CAIRN_REQUIRES(mutex_);
  void drop_inactive(BlockId block_id) CAIRN_REQUIRES(mutex_);
  void tell_registered(std::span<const Token> tokens) CAIRN_REQUIRES(mutex_);
  // The blocks of a match, told apart by whether somebody held them already. In memory of its own until the next call.
  class Found {
   public:
    Found(BlockId* room, std::size_t most) : room_(room), end_(room + most), first_awake_(end_) {}
    // Branch-free: written at both ends, counted at one.
    void add(BlockId block_id, bool was_asleep) {
      room_[asleep_] = block_id;
      *(first_awake_ - 1) = block_id;
      asleep_ += was_asleep ? 1 : 0;
      first_awake_ -= was_asleep ? 0 : 1;
    }
    [[nodiscard]] std::span<const BlockId> asleep() const { return {room_, asleep_}; }
    // The last one first.
    [[nodiscard]] std::span<const BlockId> awake() const { return {first_awake_, end_}; }

   private:
    BlockId* room_;
    BlockId* end_;
    BlockId* first_awake_;
    std::size_t asleep_ = 0;
  };
  void finish_match(std::span<const BlockKey> keys, const Found& found) CAIRN_REQUIRES(mutex_);
  void tell_removed() CAIRN_REQUIRES(mutex_);
  void tell_evicted() CAIRN_REQUIRES(mutex_);

  // Constant after construction.
  const BlockPoolOptions options_;
  const Clock& clock_;
  const bool watched_;  // there are observers
  const std::uint32_t level_bits_;

  std::atomic<std::uint64_t> weak_{0};

  Mutex mutex_{LockRank::kPool};
  // Guarded by mutex_, except that the holder of a private block writes its key, parent_high, tokens hash and note.
  PageArray<Record> records_;
  PageArray<BlockHash> tokens_hashes_;
  PageArray<std::uint64_t> notes_;  // empty where none are kept
  KeyIndex index_;
  std::unique_ptr<EvictionPolicy> policy_;
  Veto veto_;
  Veto veto_beside_ready_;  // the same while blocks are ready: what is above one of them waits for it
  std::optional<ReadyQueue> ready_ CAIRN_GUARDED_BY(mutex_);  // there with low_water
  std::optional<RetentionClock> retention_clock_ CAIRN_GUARDED_BY(mutex_);
  std::optional<HintBook> hints_ CAIRN_GUARDED_BY(mutex_);
  TenantLedger tenants_ CAIRN_GUARDED_BY(mutex_);
  RunBuffers buffers_ CAIRN_GUARDED_BY(mutex_);
  BlockId first_free_ CAIRN_GUARDED_BY(mutex_) = kNoBlock;
  std::uint32_t never_used_ CAIRN_GUARDED_BY(mutex_) = 0;  // blocks from here on are free and in no list
  std::uint32_t free_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t quarantined_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t registered_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t pinned_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t fence_ CAIRN_GUARDED_BY(mutex_) = 1;        // grows with each that is raised
  std::uint32_t stamp_ CAIRN_GUARDED_BY(mutex_) = 1;        // fence_, or 0 while the fence is up
  std::uint8_t mark_ CAIRN_GUARDED_BY(mutex_) = 1 << 1;     // the low bits of fence_, above kResetOnRelease
  std::uint32_t unreclaimed_ CAIRN_GUARDED_BY(mutex_) = 0;  // blocks of before the fence that nobody uses
  std::uint32_t swept_ CAIRN_GUARDED_BY(mutex_) = 0;        // blocks below are rid of blocks of before the fence
  std::uint32_t sweep_end_ CAIRN_GUARDED_BY(mutex_) = 0;    // and those from here on
  std::uint32_t fences_unswept_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t borrowed_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t borrowed_inactive_ CAIRN_GUARDED_BY(mutex_) = 0;  // of those, evictable but for the loan
  std::uint32_t set_aside_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t low_water_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t largest_allocation_ CAIRN_GUARDED_BY(mutex_) = 0;
  PoolStats stats_ CAIRN_GUARDED_BY(mutex_);
  // Used during one call, and empty between calls; kept for their memory.
  std::uint32_t room_ CAIRN_GUARDED_BY(mutex_) = 0;  // blocks of the largest run that there is memory for
  std::vector<BlockId> scratch_ CAIRN_GUARDED_BY(mutex_);
  std::vector<BlockId> collected_ CAIRN_GUARDED_BY(mutex_);
  std::vector<BlockId> ordinary_ CAIRN_GUARDED_BY(mutex_);
  std::vector<BlockKey> removed_keys_ CAIRN_GUARDED_BY(mutex_);
  std::vector<BlockKey> matched_keys_ CAIRN_GUARDED_BY(mutex_);
  std::vector<BlockKey> sorted_keys_ CAIRN_GUARDED_BY(mutex_);
  std::vector<ResidentBlock> new_blocks_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn
