// InactiveBlocks: the registered blocks of a pool that nobody uses, in the order in which they are evicted.
//
// Ready blocks go first: their holder released them as victims, so that they could be copied elsewhere beforehand. Then
// the eviction policy decides, among blocks of the lowest priority and, with hints, of the lowest level within it. A
// block whose time to live ends goes before all of them (next_expired()).
//
//     insert(), insert_ready()            blocks lost their last reference
//     remove(), match(), use(), hold()    blocks are in use again
//     evict(), evict_any(), claim()       takes out the next victims
//     forget()                            blocks lost their keys
//     next_expired()                      applies what time changes
//
// The class moves blocks between its own structures and changes their eviction class, but neither their state nor their
// references, with one exception: a borrowed block whose turn it is to be evicted is not returned but deferred
// (BlockRecords::defer_eviction()), and the next block is evicted in its place.
//
// Invariants, which check_invariants() verifies:
//   N1  an inactive block is held by the policy or by the ready queue, not both, and no other block is
//   N2  a block knows how many ready blocks are its children, if leaves go first
//   N3  the counts of inactive blocks, and of borrowed ones among them, add up for the pool and for each tenant
//
// Thread safety: none; the lock of the pool guards it.
// Complexity: as the policy: O(1) or O(log n) a block. Nothing is allocated after create(), swap_order() and reserve().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/hint_book.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/block_records.h"
#include "cairn/pool/key_index.h"
#include "cairn/pool/ready_queue.h"
#include "cairn/pool/retention_clock.h"

namespace cairn {

class InactiveBlocks final : private ParentFinder {
 public:
  // Everything that orders blocks. A fence replaces it as a whole.
  struct Order {
    std::unique_ptr<EvictionPolicy> policy;
    std::optional<ReadyQueue> ready = {};                // if the pool has low_water
    std::optional<RetentionClock> retention_clock = {};  // if blocks may have a time to live, or hints
    std::optional<HintBook> hints = {};
  };

  // Options, clock, records and index outlive it. `veto` says which blocks must not be evicted now; may be empty.
  // Unusable until swap_order() gave it an order.
  InactiveBlocks(const BlockPoolOptions& options, const Clock& clock, BlockRecords& blocks, const KeyIndex& index,
                 Veto veto);
  InactiveBlocks(const InactiveBlocks&) = delete;
  InactiveBlocks& operator=(const InactiveBlocks&) = delete;
  ~InactiveBlocks() override = default;

  [[nodiscard]] Result<Order> make_order() const;
  // Takes an empty order and hands out its own: no block is inactive afterwards. Returns how many were.
  std::uint32_t swap_order(Order& order);
  // Allocates memory for calls with up to this many blocks.
  void reserve(std::size_t blocks);

  [[nodiscard]] std::uint32_t size() const { return order_.policy->size() + ready_count(); }
  [[nodiscard]] std::uint32_t ready_count() const { return order_.ready ? order_.ready->size() : 0; }
  // Blocks that can be claimed.
  [[nodiscard]] std::uint32_t unready_count() const { return order_.policy->size(); }
  // Blocks that cannot be evicted now because a copy reads them.
  [[nodiscard]] std::uint32_t borrowed_count() const { return borrowed_; }
  [[nodiscard]] bool keeps_ready_blocks() const { return order_.ready.has_value(); }
  [[nodiscard]] std::size_t bytes() const;

  // These were released, in this order; of one sequence, leaf first. Blocks that hold() took from the ready
  // queue return to it unless they were used since.
  void insert(std::span<const BlockId> block_ids);
  // The same, but they are evicted before all that the policy has. As insert() if the pool keeps no blocks ready.
  void insert_ready(std::span<const BlockId> block_ids);

  // These, which are inactive, are in use from now on or about to lose their keys.
  void remove(std::span<const BlockId> block_ids);
  // The same for a reader that does not count as a use.
  void hold(std::span<const BlockId> block_ids);
  // A request uses blocks: some were inactive, others were in use already.
  void use(std::span<const BlockId> inactive, std::span<const BlockId> in_use);
  // The same for a lookup, from which the hints learn how long a block takes to be hit.
  void match(std::span<const BlockId> inactive, std::span<const BlockId> in_use);

  // Takes out the tenant's next victims, at most as many as `out` has room for, and returns how many. Ready blocks and
  // others are not mixed in one call.
  [[nodiscard]] std::size_t evict(TenantId tenant, std::span<BlockId> out);
  // Takes out the next victim of any tenant; kNoBlock if there is none.
  [[nodiscard]] BlockId evict_any();
  // Takes out the next blocks that the policy would evict, ready blocks excepted, and returns how many. With tenants,
  // the one furthest beyond its reservation gives first. Requires: keeps_ready_blocks().
  [[nodiscard]] std::size_t claim(std::span<BlockId> out);
  // Takes out all blocks and appends them in the order of eviction, vetoes ignored.
  void take_all(std::vector<BlockId>& out);
  // So many blocks were evicted to make room, for the time that hints measure.
  void observe_evictions(std::uint32_t count);

  // These are not inactive and lost their keys: nothing known about them applies to what comes next.
  void forget(std::span<const BlockId> block_ids);

  // Whether time changes anything: blocks may have a time to live, a priority for a time, or hints.
  [[nodiscard]] bool keeps_time() const { return order_.retention_clock.has_value(); }
  // The times of blocks, in use or not; nullptr unless keeps_time().
  [[nodiscard]] const RetentionClock* times() const {
    return order_.retention_clock ? &*order_.retention_clock : nullptr;
  }
  // Applies what is due, until an inactive block expires: returns it, still inactive, or kNoBlock if nothing is due any
  // more.
  [[nodiscard]] BlockId next_expired(TimePoint now);

  // A block was registered, and is in use.
  void on_registered(BlockId block_id, const Retention& retention);
  // Requires: the block is in use.
  void set_retention(BlockId block_id, const Retention& retention);
  // Keeps the higher priority, and of equal ones the one that lasts longer. Requires: the block is in use.
  void raise_retention(BlockId block_id, const Retention& retention);
  // The request that used these blocks, in use or not, ended like this. It holds for what is inserted next, up to
  // end_ending().
  void begin_ending(std::span<const BlockId> block_ids, RequestEnding ending) { order_.policy->end(block_ids, ending); }
  void end_ending() { order_.policy->end({}, RequestEnding::kUnknown); }
  // Requires: the pool takes hints.
  void hint(BlockId block_id, const RetentionHint& hint, TimePoint now);

  // How requests used a block, in use or not, as far as the policy knows.
  [[nodiscard]] BlockPast past_of(BlockId block_id) const { return order_.policy->past_of(block_id); }
  // Requests used these blocks, which are in use, like this in another pool.
  void adopt(std::span<const BlockId> block_ids, std::span<const BlockPast> pasts) {
    order_.policy->adopt(block_ids, pasts);
  }

  // An inactive block was lent to a copy, or returned by it.
  void on_lent() { ++borrowed_; }
  void on_returned() { --borrowed_; }

  void check_invariants() const;

 private:
  [[nodiscard]] BlockId find_parent(const BlockKey& child) const override { return index_.find_parent(child); }
  [[nodiscard]] const Veto& veto() const {
    return ready_count() > 0 && order_.policy->leaves_first() ? veto_beside_ready_ : veto_;
  }
  [[nodiscard]] std::uint32_t tenant_count() const { return blocks_.tenants().tenant_count(); }
  [[nodiscard]] std::uint32_t count_borrowed(std::span<const BlockId> block_ids) const;
  void on_inserted(std::span<const BlockId> block_ids);
  void on_removed(std::span<const BlockId> block_ids);
  void tell_hints_of_use(std::span<const BlockId> block_ids);
  void push_ready(std::span<const BlockId> block_ids);
  void remove_ready(BlockId block_id);
  [[nodiscard]] std::span<const BlockId> take_from_ready(std::span<const BlockId> block_ids);
  [[nodiscard]] bool has_inactive_child(BlockId block_id) const;
  [[nodiscard]] std::size_t take_ready(TenantId tenant, std::span<BlockId> out);
  [[nodiscard]] std::size_t take_ordered(ClassRange classes, const Veto& veto, std::span<BlockId> out);
  [[nodiscard]] BlockId take_ordered(ClassRange classes, const Veto& veto);
  [[nodiscard]] std::size_t claim_from_tenants(std::span<BlockId> out);
  void defer(BlockId block_id);
  void orphan_ready_children(BlockId block_id);
  void change_class(BlockId block_id, EvictionClass to);
  void rank_by_hint(BlockId block_id, TimePoint now);

  const BlockPoolOptions& options_;
  const Clock& clock_;
  BlockRecords& blocks_;
  const KeyIndex& index_;
  const Veto veto_;
  // While blocks are ready and leaves go first: also refuses the parents of ready blocks.
  const Veto veto_beside_ready_;
  Order order_;
  std::uint32_t borrowed_ = 0;
  // Used during one call, and empty between calls.
  std::vector<BlockId> ordinary_;
  std::vector<BlockId> returning_;
};

}  // namespace cairn
