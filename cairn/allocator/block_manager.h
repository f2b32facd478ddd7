// BlockManager: the block tables of an engine's sequences, over a pool of its own or one shared with other managers.
//
// Does:    grows a sequence by blocks, shares blocks between sequences by fork(), unshares one by make_writable(), and
//          gives the blocks of a finished sequence back. A sequence is any number the caller chooses; it exists from
//          its first block to its free().
// Owner:   the caller owns the manager; the manager owns one reference to each block of each table. Destroying it gives
//          them back; a BlockHold may outlive it.
// Threads: any, at once. The manager's lock (LockRank::kBlockManager) is taken first, the allocator's under it, once a
//          call; an owned manager pays for the second lock too, uncontended. Who writes into blocks while another
//          thread forks or frees their sequence must order the two: the manager guards tables, not bytes.
// Fails:   an operation that returns an error has changed nothing. kExhausted: no blocks for this tenant now.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/allocator/block_allocator.h"
#include "cairn/allocator/block_table.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/base/thread_annotations.h"

namespace cairn {

// A reference to the source of a copy: while it lives, the block is not reused, and any sequence that still has it gets
// another one from make_writable(). Dropping it says that the copy is finished.
// Owner: whoever makes the copy. Threads: one at a time; it may be dropped on any.
class BlockHold {
 public:
  BlockHold(BlockHold&& other) noexcept = default;
  BlockHold& operator=(BlockHold&& other) noexcept;
  ~BlockHold();

  [[nodiscard]] const PhysicalTokenBlock& block() const { return block_; }

 private:
  friend class BlockManager;
  BlockHold(std::shared_ptr<BlockTenant> tenant, const PhysicalTokenBlock& block);

  std::shared_ptr<BlockTenant> tenant_;  // none once moved from
  PhysicalTokenBlock block_;
};

struct WritableBlock {
  PhysicalTokenBlock block;
  // Where the block was shared: what to copy into `block` before writing. Drop it when the copy is finished, not
  // before.
  std::optional<BlockHold> copy_from;
};

class BlockManager {
 public:
  // With a pool of its own. Fails as BlockAllocator::create().
  static Result<std::unique_ptr<BlockManager>> create(std::uint32_t total_blocks, std::uint32_t block_size,
                                                      std::uint32_t device_id);
  // As one tenant of `allocator`, until the manager and its last BlockHold are gone. Fails as
  // SharedBlockAllocator::join(); kInvalidArgument: no allocator.
  static Result<std::unique_ptr<BlockManager>> create_shared(const std::shared_ptr<SharedBlockAllocator>& allocator,
                                                             TenantShare share);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;
  ~BlockManager();

  // One more block at the end of the sequence.
  Result<PhysicalTokenBlock> allocate(std::uint64_t sequence_id);
  // `count` more, all or none; the logical index of the first of them. 0 blocks do nothing, and make no sequence.
  Result<std::uint32_t> allocate(std::uint64_t sequence_id, std::uint32_t count);

  // Forgets the sequence. One that does not exist is no error: freeing twice is harmless.
  void free(std::uint64_t sequence_id) { static_cast<void>(free_returning_count(sequence_id)); }
  // The same; says how many blocks returned to the pool: those that no other sequence and no BlockHold has.
  std::uint32_t free_returning_count(std::uint64_t sequence_id);

  // Makes `child_id` a sequence of the parent's blocks, shared, at no cost in blocks. Before writing into a block that
  // existed at the fork, parent and child ask make_writable(); blocks allocated later are their own.
  // kNotFound: no such parent. kAlreadyExists: the child exists.
  Status fork(std::uint64_t parent_id, std::uint64_t child_id);
  // The block to write at `logical_index`: the one that is there or, where it is shared, a new one that takes its
  // place. It stays writable until the sequence is forked. kNotFound: no such sequence. kOutOfRange: past its last
  // block. kExhausted: shared, and no block to copy it to.
  Result<WritableBlock> make_writable(std::uint64_t sequence_id, std::uint32_t logical_index);

  // A copy; none for a sequence that does not exist.
  [[nodiscard]] std::optional<BlockTable> get_block_table(std::uint64_t sequence_id) const;
  // The table in place, without a copy, under the manager's lock: `visit` is short and does not call the manager.
  // False, and no visit, for a sequence that does not exist.
  template <std::invocable<const BlockTable&> Visit>
  bool visit_block_table(std::uint64_t sequence_id, Visit&& visit) const {
    const MutexLock lock(mutex_);
    const auto found = tables_.find(sequence_id);
    if (found == tables_.end()) {
      return false;
    }
    visit(found->second);
    return true;
  }
  // 0 for a sequence that does not exist.
  [[nodiscard]] std::uint32_t blocks_for_sequence(std::uint64_t sequence_id) const;

  // Whether this manager could get `count` blocks now; on a shared pool a hint, as others may come first.
  [[nodiscard]] bool can_allocate(std::uint32_t count) const { return tenant_->can_allocate(count); }
  // Physical blocks in this manager's tables and holds, each counted once.
  [[nodiscard]] std::uint32_t used_blocks() const { return tenant_->used_blocks(); }
  // Of the whole pool, whoever may have them.
  [[nodiscard]] std::uint32_t free_blocks() const { return tenant_->allocator().free_blocks(); }
  [[nodiscard]] std::uint32_t total_blocks() const { return tenant_->allocator().total_blocks(); }
  [[nodiscard]] std::uint32_t block_size() const { return tenant_->allocator().block_size(); }

 private:
  explicit BlockManager(std::shared_ptr<BlockTenant> tenant) : tenant_(std::move(tenant)) {}
  std::uint32_t append(std::uint64_t sequence_id, std::span<const PhysicalTokenBlock> blocks) CAIRN_REQUIRES(mutex_);

  const std::shared_ptr<BlockTenant> tenant_;
  mutable Mutex mutex_{LockRank::kBlockManager};
  std::unordered_map<std::uint64_t, BlockTable> tables_ CAIRN_GUARDED_BY(mutex_);  // none is empty
  std::vector<PhysicalTokenBlock> batch_ CAIRN_GUARDED_BY(mutex_);  // of one allocate(); kept for its memory
};

}  // namespace cairn
