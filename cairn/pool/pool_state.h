// PoolState: the parts of one block pool under its one lock, and the steps that BlockPool and the handles to runs of
// blocks have in common.
//
// BlockPool and internal::Run lock the mutex once a call and work on the parts. Reference counts are plain integers
// that change only under the mutex, so that the last reference to a block is dropped under the lock (design, rule 4).
//
// Invariants beside those of the parts, which check_invariants() verifies:
//   P1  the index finds exactly the registered blocks that are not stale, each under its key
//   P2  free + inactive + active + quarantined = total
//
// Thread safety: every member is guarded by the mutex, except that options are constant and that the index and private
//                blocks may be used without it as KeyIndex and BlockRecords document.
// Ownership: one BlockPool. Handles point to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/block_records.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/inactive_blocks.h"
#include "cairn/pool/key_index.h"
#include "cairn/pool/pool_notifier.h"
#include "cairn/pool/run_buffers.h"

namespace cairn::internal {

class PoolState {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PoolState>> create(const BlockPoolOptions& options);
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;

  // Constant.
  const BlockPoolOptions options;
  const Clock& clock;

  // WeakBlocks of this pool. Relaxed: the count orders nothing.
  std::atomic<std::uint64_t> weak_handles{0};

  Mutex mutex{LockRank::kPool};
  BlockRecords blocks;
  KeyIndex index;
  InactiveBlocks inactive CAIRN_GUARDED_BY(mutex);
  PoolNotifier notifier CAIRN_GUARDED_BY(mutex);
  PoolStats stats CAIRN_GUARDED_BY(mutex);
  std::uint32_t pinned CAIRN_GUARDED_BY(mutex) = 0;
  std::uint32_t low_water CAIRN_GUARDED_BY(mutex) = 0;
  std::uint32_t largest_allocation CAIRN_GUARDED_BY(mutex) = 0;
  // Used during one call; kept for their memory. `victims` is empty between calls.
  std::vector<BlockId> victims CAIRN_GUARDED_BY(mutex);
  std::vector<BlockKey> sorted_keys CAIRN_GUARDED_BY(mutex);

  // An empty run with room for so many blocks.
  [[nodiscard]] Run new_run(std::uint32_t capacity) CAIRN_REQUIRES(mutex);
  // Returns the run's memory. The caller still owns the blocks.
  void end_run(Run& run) CAIRN_REQUIRES(mutex);
  // Room for this many block ids until the next call.
  [[nodiscard]] BlockId* scratch(std::size_t count) CAIRN_REQUIRES(mutex) {
    if (scratch_.size() < count) {
      scratch_.resize(count);
    }
    return scratch_.data();
  }

  // The blocks of a lookup, divided into those that were inactive and those that were in use.
  class Matched {
   public:
    // `room` holds `most` block ids.
    Matched(BlockId* room, std::size_t most) : room_(room), end_(room + most), in_use_(end_) {}
    // Branch-free: written at both ends, counted at one.
    void add(BlockId block_id, bool was_inactive) {
      room_[inactive_count_] = block_id;
      *(in_use_ - 1) = block_id;
      inactive_count_ += was_inactive ? 1 : 0;
      in_use_ -= was_inactive ? 0 : 1;
    }
    [[nodiscard]] std::span<const BlockId> inactive() const { return {room_, inactive_count_}; }
    // The last one first.
    [[nodiscard]] std::span<const BlockId> in_use() const { return {in_use_, end_}; }
    [[nodiscard]] std::size_t size() const { return inactive_count_ + static_cast<std::size_t>(end_ - in_use_); }

   private:
    BlockId* room_;
    BlockId* end_;
    BlockId* in_use_;
    std::size_t inactive_count_ = 0;
  };
  [[nodiscard]] Matched new_match(std::size_t most) CAIRN_REQUIRES(mutex) { return {scratch(most), most}; }

  // Makes expired blocks free. The caller reports their keys to the observers.
  void expire() CAIRN_REQUIRES(mutex);
  // The same, and tells the observers: the first step of most calls.
  void refresh() CAIRN_REQUIRES(mutex) {
    expire();
    notifier.tell_removed();
  }

  // The keys of these blocks, which are not inactive, are no longer found.
  void remove_keys(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex);
  // Makes an inactive block free.
  void drop_inactive(BlockId block_id) CAIRN_REQUIRES(mutex);

  // What is known of a registered block, its times included.
  [[nodiscard]] BlockFacts facts(BlockId block_id) const CAIRN_REQUIRES(mutex);

  // Fetches what a lookup of these keys will read while another thread holds the lock; has no effect if none does.
  void warm_up(const KeyIndex::Lookup& lookup);

  // One reference less. Returns the block if it is to become inactive now, else kNoBlock.
  [[nodiscard]] BlockId release_one(BlockId block_id) CAIRN_REQUIRES(mutex);
  // Begins to fetch the records of the last blocks of a run, which are released first. Needs no lock.
  void prefetch_tail(std::span<const BlockId> block_ids) const;
  // Those of the blocks that can be matched, in the same order; of a duplicate, the block of its key. In scratch().
  [[nodiscard]] std::span<const BlockId> matchable(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex);
  // One reference less for each, last one first, so that of a sequence the leaf is evicted first.
  void release(std::span<const BlockId> block_ids) CAIRN_REQUIRES(mutex);

  [[nodiscard]] Status check_retention(const Retention& retention) const;

  void check_invariants() CAIRN_REQUIRES(mutex);
  [[nodiscard]] std::size_t bytes() CAIRN_REQUIRES(mutex);

 private:
  PoolState(const BlockPoolOptions& options, BlockRecords records, KeyIndex empty_index);
  [[nodiscard]] Veto make_veto();
  void reserve(std::uint32_t blocks) CAIRN_REQUIRES(mutex);

  RunBuffers buffers_ CAIRN_GUARDED_BY(mutex);
  std::uint32_t reserved_ CAIRN_GUARDED_BY(mutex) = 0;  // blocks of the largest run that there is memory for
  std::vector<BlockId> scratch_ CAIRN_GUARDED_BY(mutex);
};

}  // namespace cairn::internal
