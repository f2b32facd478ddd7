// Handles to runs of blocks, one type for each right a holder can have. A run is any number of blocks of one pool, one
// handle, taken and released under one lock; a single block is a run of one.
//
//     MutableBlocks --complete--> CompleteBlocks --register_blocks--> ImmutableBlocks <--upgrade/downgrade-->
//     WeakBlocks
//        may write, unnamed          named, private                   shared, read-only       knows, does not hold
//
// Does:     a step consumes its handle, so that an illegal one does not compile; a step that fails hands the blocks
// back
//           inside its error. Dropping a handle gives its blocks back: mutable and complete ones become free, immutable
//           ones evictable once nobody else holds them, leaf first.
// Owner:    move-only values. Every handle is gone before its pool is (the pool checks).
// Threads:  a handle belongs to one thread at a time; any number of handles may be used and dropped at once.
// Fails:    as said at each call; nothing has changed then.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/token_block.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

class SlotTable;

// A failed step: why, and the blocks as they were.
template <typename Blocks>
struct Rejected {
  Error error;
  Blocks blocks;
};

// How long a block is kept. Higher priorities are evicted later, whatever the policy.
struct Retention {
  static constexpr std::uint32_t kMaxPriority = 100;
  static constexpr std::uint32_t kDefaultPriority = 35;

  std::uint32_t priority = kDefaultPriority;
  // A block that has lain unused for this long has kDefaultPriority from then on.
  std::optional<Duration> priority_duration = std::nullopt;
  // A block that has lain unused for this long is gone: not matched any more, and the first to make room.
  std::optional<Duration> time_to_live = std::nullopt;
};

// What a run of blocks is to be called.
struct BlockNames {
  std::span<const BlockKey> keys;
  // One for each key, for those who follow events; or none at all.
  std::span<const BlockHash> tokens_hashes = {};
  // The sequence hash of the block before the first, where there is one. Without it the pool tells its observers what it
  // can find out: all of it if that block is registered, else the bits that the key holds.
  std::optional<SequenceHash> parent = std::nullopt;
};

namespace internal {

// The blocks of a run, in storage that the pool recycles. Knows nothing of rights; the handles below add them.
class Run {
 public:
  Run() = default;
  Run(SlotTable* table, BlockId* block_ids, std::uint32_t size, std::uint32_t capacity)
      : table_(table), block_ids_(block_ids), size_(size), capacity_(capacity) {}
  Run(Run&& other) noexcept
      : table_(other.table_),
        block_ids_(std::exchange(other.block_ids_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Run& operator=(Run&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(block_ids_, other.block_ids_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() = default;  // the handle around it gives the blocks back

  [[nodiscard]] SlotTable* table() const { return table_; }
  [[nodiscard]] std::span<BlockId> block_ids() { return {block_ids_, size_}; }
  [[nodiscard]] std::span<const BlockId> block_ids() const { return {block_ids_, size_}; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] BlockId* storage() const { return block_ids_; }
  void resize(std::uint32_t size) { size_ = size; }

 private:
  SlotTable* table_ = nullptr;
  BlockId* block_ids_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace internal

// Blocks whose memory a transfer may still touch although nobody wants their contents. They are neither free nor
// evictable until `release_proven_finished`; dropping the handle without it keeps them out of use for good.
class [[nodiscard]] QuarantinedBlocks {
 public:
  explicit QuarantinedBlocks(internal::Run run) : run_(std::move(run)) {}
  QuarantinedBlocks(QuarantinedBlocks&&) noexcept = default;
  QuarantinedBlocks& operator=(QuarantinedBlocks&&) = delete;
  ~QuarantinedBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  // The transfer is known to be over: the blocks are free again.
  void release_proven_finished() &&;

 private:
  internal::Run run_;
};

class CompleteBlocks;
class ImmutableBlocks;
class WeakBlocks;
class PinnedBlocks;

// Blocks to be filled. Nobody else sees them.
class [[nodiscard]] MutableBlocks {
 public:
  explicit MutableBlocks(internal::Run run) : run_(std::move(run)) {}
  MutableBlocks(MutableBlocks&&) noexcept = default;
  MutableBlocks& operator=(MutableBlocks&&) = delete;
  ~MutableBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] bool empty() const { return run_.size() == 0; }

  // The bytes are there: names the blocks. Fails unless there is one key for each block, and tokens hashes for all of
  // them or none.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete(const BlockNames& names) &&;
  // The same with the names of these blocks of a sequence. Fails also where its blocks are not of the pool's size, and
  // where it does not have them.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete(const TokenBlockSequence& sequence,
                                                                         BlockRange blocks) &&;
  // The same with the name of one block.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete(const TokenBlock& block) &&;
  // The same as another pool knew them, notes included where this pool keeps them; priorities are register_blocks' matter.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete_as(std::span<const BlockFacts> facts) &&;
  // Splits off the first `count` (at most all of them); this handle keeps the rest.
  [[nodiscard]] MutableBlocks take_front(std::uint32_t count);
  // Joins other blocks of the same pool to the end.
  [[nodiscard]] Result<void, Rejected<MutableBlocks>> append(MutableBlocks other);
  // A copy into these blocks may still be under way though nobody waits for it.
  [[nodiscard]] QuarantinedBlocks quarantine() &&;
  // Whether they can be registered so that others find them: no fence was raised since they were allocated
  // (BlockPool::raise_fence()).
  [[nodiscard]] bool is_current() const;

 private:
  internal::Run run_;
};

// Filled and named, and still private: dropped, they are free again.
class [[nodiscard]] CompleteBlocks {
 public:
  explicit CompleteBlocks(internal::Run run) : run_(std::move(run)) {}
  CompleteBlocks(CompleteBlocks&&) noexcept = default;
  CompleteBlocks& operator=(CompleteBlocks&&) = delete;
  ~CompleteBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] bool empty() const { return run_.size() == 0; }
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // requires: i < size(); else it aborts

  // Makes the blocks known under their keys, all under one lock. Where the pool has a key already: a pool that rejects
  // duplicates frees the late block and the result holds the one that was there; a pool that allows them keeps both.
  // `tokens`: all token ids of the run, to go into the events, or none. Fails on a key that stands in the run twice, on
  // a number of tokens that does not fit, and on a retention the pool cannot keep.
  [[nodiscard]] Result<ImmutableBlocks, Rejected<CompleteBlocks>> register_blocks(
      std::span<const Token> tokens = {}) &&;
  [[nodiscard]] Result<ImmutableBlocks, Rejected<CompleteBlocks>> register_blocks(
      const Retention& retention, std::span<const Token> tokens = {}) &&;
  // Takes the names away again.
  [[nodiscard]] MutableBlocks reset() &&;
  [[nodiscard]] Result<void, Rejected<CompleteBlocks>> append(CompleteBlocks other);

 private:
  internal::Run run_;
};

// Registered blocks that stay where they are, unchanged, while this handle or another one holds them.
class [[nodiscard]] ImmutableBlocks {
 public:
  ImmutableBlocks() = default;  // holds nothing
  explicit ImmutableBlocks(internal::Run run) : run_(std::move(run)) {}
  ImmutableBlocks(ImmutableBlocks&&) noexcept = default;
  ImmutableBlocks& operator=(ImmutableBlocks&& other) noexcept;
  ~ImmutableBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] bool empty() const { return run_.size() == 0; }
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // requires: i < size(); else it aborts

  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // Of their pool; none where this holds nothing.
  [[nodiscard]] std::optional<CacheLevel> tier() const;

  // Another handle to the first `count` of the same blocks (all of them by default).
  [[nodiscard]] ImmutableBlocks share() const { return share(size()); }
  [[nodiscard]] ImmutableBlocks share(std::uint32_t count) const;
  // Gives up all but the first `count`.
  void release_tail(std::uint32_t count);
  [[nodiscard]] Result<void, Rejected<ImmutableBlocks>> append(ImmutableBlocks other);
  [[nodiscard]] WeakBlocks downgrade() const;
  [[nodiscard]] PinnedBlocks pin() const;
  // Whether the blocks become free, not evictable, when the last holder lets go.
  void reset_on_release(bool reset);
  // Fails on a retention the pool cannot keep.
  [[nodiscard]] Status set_retention(const Retention& retention);
  // Whether others may find them: their pool raised no fence since they were registered, and did not discard them.
  [[nodiscard]] bool is_current() const;
  // Gives the blocks back as the first to go, in the order of the run: those that nobody else holds are evictable and
  // evicted before any the policy has. Until then they can be matched, and one that is matched is as any other again.
  // Blocks that others hold are only let go. Where the pool has no low_water, it is as dropping the handle. Takes the
  // pool's lock for a few blocks at a time: allocations do not wait for all of them.
  void release_as_victims() &&;

 private:
  internal::Run run_;
};

// Knows blocks by name without holding them: it delays nothing and may come too late.
class WeakBlocks {
 public:
  WeakBlocks(SlotTable* table, std::vector<BlockKey> keys);
  WeakBlocks(const WeakBlocks& other);
  WeakBlocks(WeakBlocks&& other) noexcept;
  WeakBlocks& operator=(WeakBlocks other) noexcept;
  ~WeakBlocks();

  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  // All of the blocks, or nothing if one of them has gone.
  [[nodiscard]] std::optional<ImmutableBlocks> upgrade() const;

 private:
  SlotTable* table_;  // null: it knows nothing, or was moved from
  std::vector<BlockKey> keys_;
};

// Holds blocks in place without a right to use them: for a copy that reads them, or an operator who wants them kept.
// Counted apart from use.
class [[nodiscard]] PinnedBlocks {
 public:
  explicit PinnedBlocks(internal::Run run) : run_(std::move(run)) {}
  PinnedBlocks(PinnedBlocks&&) noexcept = default;
  PinnedBlocks& operator=(PinnedBlocks&&) = delete;
  ~PinnedBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // requires: i < size(); else it aborts
  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // As of ImmutableBlocks.
  [[nodiscard]] bool is_current() const;

 private:
  internal::Run run_;
};

// Blocks whose bytes a copy reads: their memory stays as it is while this handle is there, and nothing else about them
// changes. The blocks are not in use: each keeps its place in the order of eviction, can be matched, released, reset and
// discarded. When it is an evictable block's turn to go, the pool evicts another one, and this one is ready to go when it
// is given back. The memory of a block that is reset or discarded meanwhile is in quarantine until then.
class [[nodiscard]] BorrowedBlocks {
 public:
  explicit BorrowedBlocks(internal::Run run) : run_(std::move(run)) {}
  BorrowedBlocks(BorrowedBlocks&&) noexcept = default;
  BorrowedBlocks& operator=(BorrowedBlocks&&) = delete;
  ~BorrowedBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // Whether the pool still has all of them: none was reset or discarded, and no fence was raised.
  [[nodiscard]] bool is_current() const;

 private:
  internal::Run run_;
};

}  // namespace cairn
