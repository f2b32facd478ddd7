// Handles to runs of blocks, one type for each right that a holder can have. A run is any number of blocks of one pool,
// taken and released under one lock; a single block is a run of one.
//
//     MutableBlocks --complete--> CompleteBlocks --register_blocks--> ImmutableBlocks <--upgrade/downgrade--> WeakBlocks
//        may write, no key           has a key, private                  shared, read-only        knows the keys only
//
// A step consumes its handle, so an illegal step does not compile. Destroying a handle releases its blocks: mutable and
// complete blocks become free; immutable ones become inactive once nobody else holds them, leaf first.
//
// Ownership: move-only values. Every handle must be destroyed before its pool (the pool checks).
// Thread safety: a handle belongs to one thread at a time. Different handles may be used from different threads at
// once.
// Errors: a step that fails has no effect, and returns the blocks inside its error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/evict/request_ending.h"
#include "cairn/evict/retention.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/token_sequence.h"

namespace cairn {

// A failed step: the error, and the blocks unchanged.
template <typename Blocks>
struct Rejected {
  Error error;
  Blocks blocks;
};

// The keys of a run of blocks, and what events say about them.
struct BlockNames {
  std::span<const BlockKey> keys;
  // One for each key, or empty.
  std::span<const BlockHash> tokens_hashes = {};
  // The sequence hash of the block before the first. If it is missing, observers get the hash if that block is
  // registered, else only the bits that the key holds of it.
  std::optional<SequenceHash> parent = std::nullopt;
};

namespace internal {

class PoolState;

// The blocks of a handle, and what can be done with them. The handles below decide which of it their holder may do.
//
// Ownership: move-only. The ids are in memory that the pool recycles; a run that holds any is ended by one of the calls
// below that say so, not by its destructor.
// Thread safety: as the handle around it. Every call locks the pool once, unless it says otherwise.
class Run {
 public:
  Run() = default;
  Run(PoolState* pool, BlockId* block_ids, std::uint32_t size, std::uint32_t capacity)
      : pool_(pool), block_ids_(block_ids), size_(size), capacity_(capacity) {}
  Run(Run&& other) noexcept
      : pool_(other.pool_),
        block_ids_(std::exchange(other.block_ids_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Run& operator=(Run&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_ids_, other.block_ids_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() = default;

  [[nodiscard]] PoolState* pool() const { return pool_; }
  [[nodiscard]] std::span<BlockId> block_ids() { return {block_ids_, size_}; }
  [[nodiscard]] std::span<const BlockId> block_ids() const { return {block_ids_, size_}; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Whether it has memory of the pool, and so has to be ended.
  [[nodiscard]] bool is_open() const { return block_ids_ != nullptr; }

  // For the code that fills the run.
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] BlockId* storage() const { return block_ids_; }
  void resize(std::uint32_t size) { size_ = size; }
  void push_back(BlockId block_id) { block_ids_[size_++] = block_id; }

  // Any blocks.
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // without a lock. Requires: i < size(); else it aborts
  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // Whether no fence was raised since the blocks were allocated (private ones) or registered, and none was discarded.
  [[nodiscard]] bool is_current() const;
  [[nodiscard]] Run split_front(std::uint32_t count);
  // Ends `other`. Requires: both are open and of one pool.
  void append(Run& other);

  // Private blocks. complete() takes no lock: nobody else sees the blocks.
  [[nodiscard]] Status complete(const BlockNames& names);
  [[nodiscard]] Status complete(std::span<const BlockFacts> facts);
  [[nodiscard]] Status register_blocks(const Retention& retention, std::span<const Token> tokens);
  void quarantine();
  void release_private();  // ends the run

  // Quarantined blocks. Both end the run.
  void release_quarantined();
  void abandon_quarantined();

  // Registered blocks.
  [[nodiscard]] Run share(std::uint32_t count) const;
  [[nodiscard]] Run pin() const;
  [[nodiscard]] Status set_retention(const Retention& retention);
  void adopt(std::span<const BlockFacts> facts);
  void set_reset_on_release(bool reset);
  void release_tail(std::uint32_t count);  // ends the run if `count` is 0
  // Each ends the run.
  void release(RequestEnding ending = RequestEnding::kUnknown);
  void release_pinned();
  void release_as_victims();
  void return_borrowed();

 private:
  PoolState* pool_ = nullptr;
  BlockId* block_ids_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace internal

// Blocks whose memory a transfer may still touch although nobody needs their contents. They become free by
// release_proven_finished() only; destroying the handle without it leaks them.
class [[nodiscard]] QuarantinedBlocks {
 public:
  explicit QuarantinedBlocks(internal::Run run) : run_(std::move(run)) {}
  QuarantinedBlocks(QuarantinedBlocks&&) noexcept = default;
  QuarantinedBlocks& operator=(QuarantinedBlocks&&) = delete;
  ~QuarantinedBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  // The transfer has ended: the blocks are free again.
  void release_proven_finished() &&;

 private:
  internal::Run run_;
};

class CompleteBlocks;
class ImmutableBlocks;
class WeakBlocks;
class PinnedBlocks;

// Blocks to be filled; private to the holder.
class [[nodiscard]] MutableBlocks {
 public:
  explicit MutableBlocks(internal::Run run) : run_(std::move(run)) {}
  MutableBlocks(MutableBlocks&&) noexcept = default;
  MutableBlocks& operator=(MutableBlocks&&) = delete;
  ~MutableBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] bool empty() const { return run_.size() == 0; }

  // The blocks are filled; gives them their keys. Fails unless there is one key for each block, and a tokens hash for
  // each or for none.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete(const BlockNames& names) &&;
  // The same with the keys of these blocks of a sequence. Also fails if the sequence has another block size than the
  // pool, or does not have these blocks.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete(const TokenBlockSequence& sequence,
                                                                         BlockRange blocks) &&;
  // The same with the key of one block.
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete(const TokenBlock& block) &&;
  // The same with the facts that another pool had. Checksums are taken over if this pool keeps them; priorities are
  // not, but passed to register_blocks().
  [[nodiscard]] Result<CompleteBlocks, Rejected<MutableBlocks>> complete_as(std::span<const BlockFacts> facts) &&;
  // Splits off the first `count` blocks, or all if there are fewer.
  [[nodiscard]] MutableBlocks take_front(std::uint32_t count);
  // Adds blocks of the same pool at the end. Fails if they are of another pool.
  [[nodiscard]] Result<void, Rejected<MutableBlocks>> append(MutableBlocks other);
  // For blocks that a copy in flight may still write to, though nobody waits for it.
  [[nodiscard]] QuarantinedBlocks quarantine() &&;
  // Whether the blocks can be found once they are registered: no fence was raised since they were allocated
  // (BlockPool::raise_fence()).
  [[nodiscard]] bool is_current() const;

 private:
  internal::Run run_;
};

// Blocks that are filled and have keys, and are still private.
class [[nodiscard]] CompleteBlocks {
 public:
  explicit CompleteBlocks(internal::Run run) : run_(std::move(run)) {}
  CompleteBlocks(CompleteBlocks&&) noexcept = default;
  CompleteBlocks& operator=(CompleteBlocks&&) = delete;
  ~CompleteBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] bool empty() const { return run_.size() == 0; }
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // aborts unless i < size()

  // Lets others find the blocks under their keys. If the pool has a key already, a pool that rejects duplicates frees
  // the new block and the result holds the old one; a pool that allows duplicates keeps both. `tokens`: the token ids
  // of the whole run, for events, or empty. Fails if the run has a key twice, if the number of tokens is wrong, and if
  // the pool cannot keep the retention.
  [[nodiscard]] Result<ImmutableBlocks, Rejected<CompleteBlocks>> register_blocks(
      std::span<const Token> tokens = {}) &&;
  [[nodiscard]] Result<ImmutableBlocks, Rejected<CompleteBlocks>> register_blocks(
      const Retention& retention, std::span<const Token> tokens = {}) &&;
  // Takes the keys away again.
  [[nodiscard]] MutableBlocks reset() &&;
  [[nodiscard]] Result<void, Rejected<CompleteBlocks>> append(CompleteBlocks other);

 private:
  internal::Run run_;
};

// Registered blocks in use: they are neither evicted nor changed while a handle holds them.
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
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // aborts unless i < size()

  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // The tier of their pool; std::nullopt if the handle is empty.
  [[nodiscard]] std::optional<CacheLevel> tier() const;

  // Another handle to the first `count` blocks (all by default).
  [[nodiscard]] ImmutableBlocks share() const { return share(size()); }
  [[nodiscard]] ImmutableBlocks share(std::uint32_t count) const;
  // Releases all but the first `count` blocks.
  void release_tail(std::uint32_t count);
  // The same as destroying the handle, of a request that ended like this: the policy expects its session back
  // accordingly.
  void release(RequestEnding ending) &&;
  [[nodiscard]] Result<void, Rejected<ImmutableBlocks>> append(ImmutableBlocks other);
  [[nodiscard]] WeakBlocks downgrade() const;
  [[nodiscard]] PinnedBlocks pin() const;
  // Whether the blocks become free, not inactive, when the last holder releases them.
  void reset_on_release(bool reset);
  // Requests used the blocks in another pool as these facts say, which is no use here.
  void adopt(std::span<const BlockFacts> facts) { run_.adopt(facts); }
  // Fails if the pool cannot keep the retention.
  [[nodiscard]] Status set_retention(const Retention& retention);
  // Whether others can find the blocks: no fence was raised since they were registered, and none was discarded.
  [[nodiscard]] bool is_current() const;
  // Releases the blocks as the next victims: those that nobody else holds become ready, in the order of the run, and
  // are evicted before any that the policy has. They can still be matched; a matched block is no longer ready. The same
  // as destroying the handle if the pool has no low_water. Takes the pool's lock for a few blocks at a time, so that
  // allocations do not wait for all of them.
  void release_as_victims() &&;

 private:
  internal::Run run_;
};

// Knows the keys of blocks without holding the blocks.
class WeakBlocks {
 public:
  WeakBlocks(internal::PoolState* pool, std::vector<BlockKey> keys);
  WeakBlocks(const WeakBlocks& other);
  WeakBlocks(WeakBlocks&& other) noexcept;
  WeakBlocks& operator=(WeakBlocks other) noexcept;
  ~WeakBlocks();

  [[nodiscard]] std::span<const BlockKey> keys() const { return keys_; }
  // A handle to all of the blocks, or std::nullopt if one of them is gone.
  [[nodiscard]] std::optional<ImmutableBlocks> upgrade() const;

 private:
  internal::PoolState* pool_;  // null if it has no keys or was moved from
  std::vector<BlockKey> keys_;
};

// Blocks that are kept in place without being used: by a copy that reads them, or by an operator.
class [[nodiscard]] PinnedBlocks {
 public:
  explicit PinnedBlocks(internal::Run run) : run_(std::move(run)) {}
  PinnedBlocks(PinnedBlocks&&) noexcept = default;
  PinnedBlocks& operator=(PinnedBlocks&&) = delete;
  ~PinnedBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // aborts unless i < size()
  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // As ImmutableBlocks::is_current().
  [[nodiscard]] bool is_current() const;

 private:
  internal::Run run_;
};

// Blocks whose bytes a copy reads: their memory does not change while this handle exists. The blocks are not in use:
// each keeps its place in the order of eviction, and can be matched, released, reset and discarded. When it is the turn
// of one to be evicted, the pool evicts another block, and this one becomes ready when it is returned. A block that is
// reset or discarded meanwhile is quarantined until it is returned.
class [[nodiscard]] BorrowedBlocks {
 public:
  explicit BorrowedBlocks(internal::Run run) : run_(std::move(run)) {}
  BorrowedBlocks(BorrowedBlocks&&) noexcept = default;
  BorrowedBlocks& operator=(BorrowedBlocks&&) = delete;
  ~BorrowedBlocks();

  [[nodiscard]] std::span<const BlockId> block_ids() const { return run_.block_ids(); }
  [[nodiscard]] std::uint32_t size() const { return run_.size(); }
  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // Whether the pool still has all of the blocks: none was reset or discarded, and no fence was raised.
  [[nodiscard]] bool is_current() const;

 private:
  internal::Run run_;
};

// Blocks that the engine holds in a tier without a pool. It must not change or reuse them until `held` is released.
struct EngineBlocks {
  std::vector<BlockId> block_ids = {};
  std::vector<BlockFacts> facts = {};  // one for each block, as far as they are known; not used for targets
  std::shared_ptr<void> held = {};     // released when nothing touches the blocks any more
  // KvBlockManager::fences() when the engine began to write the blocks. A save of blocks from before a fence is refused.
  // std::nullopt means now.
  std::optional<std::uint64_t> fence = {};
  // Transfers from and to the blocks do not begin before the engine has reached this step.
  StepMark not_before = {};
  TenantId tenant = kDefaultTenant;  // that copies of the blocks are charged to, in the tier that they go to
};

}  // namespace cairn
