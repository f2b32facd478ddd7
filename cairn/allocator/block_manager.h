// BlockManager: keeps the block tables of an engine's sequences, over an allocator of its own or one that it shares with
// other managers. For engines without prefix reuse; with it, see KvBlockManager (manager/).
//
// allocate() appends blocks to a sequence, fork() lets two sequences share blocks, make_writable() copies a shared block
// before it is written, free() ends a sequence. The caller chooses the ids of sequences; a sequence exists from its first
// block until it is freed.
//
// Thread safety: safe from any thread. A call takes the manager's lock (LockRank::kBlockManager) and, under it, the
// allocator's once. The locks guard tables, not bytes: do not write into a block while another thread forks or frees its
// sequence.
// Ownership: owns one reference to each block of each table, and drops them when it is destroyed. A BlockHold may outlive
// the manager.
// Errors: a call that fails has no effect. kExhausted: no block is free for this tenant; retry after blocks were freed.
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

// A reference to the source block of a copy: while it lives, the block is not reused, and make_writable() copies it for
// every sequence that still has it. Destroy it when the copy is finished.
//
// Thread safety: one thread at a time; it may be destroyed on any thread.
class BlockHold {
 public:
  BlockHold(BlockHold&& other) noexcept = default;
  BlockHold& operator=(BlockHold&& other) noexcept;
  ~BlockHold();

  [[nodiscard]] const PhysicalTokenBlock& block() const { return block_; }

 private:
  friend class BlockManager;
  BlockHold(std::shared_ptr<BlockTenant> tenant, const PhysicalTokenBlock& block);

  std::shared_ptr<BlockTenant> tenant_;  // null after a move
  PhysicalTokenBlock block_;
};

struct WritableBlock {
  PhysicalTokenBlock block;
  // The block to copy into `block` before writing, if the block was shared. Keep it until the copy is finished.
  std::optional<BlockHold> copy_from;
};

class BlockManager {
 public:
  // With an allocator of its own. Errors: those of BlockAllocator::create().
  static Result<std::unique_ptr<BlockManager>> create(std::uint32_t total_blocks, std::uint32_t block_size,
                                                      std::uint32_t device_id);
  // As a tenant of `allocator`, until the manager and its last BlockHold are destroyed. Errors: those of
  // SharedBlockAllocator::join(), and kInvalidArgument if `allocator` is null.
  static Result<std::unique_ptr<BlockManager>> create_shared(const std::shared_ptr<SharedBlockAllocator>& allocator,
                                                             TenantShare share);
  BlockManager(const BlockManager&) = delete;
  BlockManager& operator=(const BlockManager&) = delete;
  ~BlockManager();

  // Appends one block to the sequence.
  Result<PhysicalTokenBlock> allocate(std::uint64_t sequence_id);
  // Appends `count` blocks, or none if it fails; returns the logical index of the first of them. A count of 0 does nothing
  // and does not make the sequence exist.
  Result<std::uint32_t> allocate(std::uint64_t sequence_id, std::uint32_t count);

  // Ends the sequence. Does nothing if it does not exist, so freeing it twice is harmless.
  void free(std::uint64_t sequence_id) { static_cast<void>(free_returning_count(sequence_id)); }
  // The same; returns how many blocks became free: those that no other sequence and no BlockHold has.
  std::uint32_t free_returning_count(std::uint64_t sequence_id);

  // Makes a sequence `child_id` that shares all blocks of the parent. Call make_writable() before writing into a block
  // that existed at the fork, for the parent as well as for the child; blocks allocated later are not shared.
  // Errors: kNotFound if the parent does not exist, kAlreadyExists if the child exists.
  Status fork(std::uint64_t parent_id, std::uint64_t child_id);
  // The block to write at `logical_index`: the one in the table or, if that one is shared, a new block that replaces it.
  // The block stays writable until the sequence is forked. Errors: kNotFound if the sequence does not exist, kOutOfRange
  // if the index is past its last block, kExhausted if the block is shared and no block is free to copy it to.
  Result<WritableBlock> make_writable(std::uint64_t sequence_id, std::uint32_t logical_index);

  // A copy of the table; std::nullopt if the sequence does not exist.
  [[nodiscard]] std::optional<BlockTable> get_block_table(std::uint64_t sequence_id) const;
  // Calls visit(const BlockTable&) under the manager's lock, without a copy; `visit` must be short and must not call the
  // manager. Returns false, without a call, if the sequence does not exist.
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
  // 0 if the sequence does not exist.
  [[nodiscard]] std::uint32_t blocks_for_sequence(std::uint64_t sequence_id) const;

  // Whether `count` blocks can be allocated now. With a shared allocator it is a hint: another tenant may come first.
  [[nodiscard]] bool can_allocate(std::uint32_t count) const { return tenant_->can_allocate(count); }
  // Blocks in the tables and BlockHolds of this manager, each counted once.
  [[nodiscard]] std::uint32_t used_blocks() const { return tenant_->used_blocks(); }
  // Of the whole allocator, for all its tenants.
  [[nodiscard]] std::uint32_t free_blocks() const { return tenant_->allocator().free_blocks(); }
  [[nodiscard]] std::uint32_t total_blocks() const { return tenant_->allocator().total_blocks(); }
  [[nodiscard]] std::uint32_t block_size() const { return tenant_->allocator().block_size(); }

 private:
  explicit BlockManager(std::shared_ptr<BlockTenant> tenant) : tenant_(std::move(tenant)) {}
  std::uint32_t append(std::uint64_t sequence_id, std::span<const PhysicalTokenBlock> blocks) CAIRN_REQUIRES(mutex_);

  const std::shared_ptr<BlockTenant> tenant_;
  mutable Mutex mutex_{LockRank::kBlockManager};
  std::unordered_map<std::uint64_t, BlockTable> tables_ CAIRN_GUARDED_BY(mutex_);  // none is empty
  std::vector<PhysicalTokenBlock> batch_
      CAIRN_GUARDED_BY(mutex_);  // of one allocate(); a member so that it keeps its memory
};

}  // namespace cairn
