// Blocks of one device's KV memory for an engine without prefix reuse: allocators with reference counts, and the block tables of
// sequences over them. They manage block numbers, not bytes. With prefix reuse, see KvBlockManager (manager/).
//
//   PhysicalTokenBlock    one block
//   BlockAllocator        the free list and the reference counts, for one thread
//   SharedBlockAllocator  the same under a lock, divided among tenants
//   BlockTenant           one tenant of a shared allocator: all calls that allocate and free blocks
//   BlockTable            the blocks of one sequence, in order
//   BlockManager          the tables of an engine's sequences
//
// Blocks are handed out as 0, 1, 2, ... at first; a freed block is the next one to be handed out. allocate() gives a block
// one reference, retain() adds one, free() drops one, and with the last reference the block is free again.
//
// A tenant may reserve blocks, which it can always allocate whatever the other tenants do, and it may have a limit. Blocks
// that are neither reserved nor used go to the tenant that asks first. A block is charged once, to the tenant that
// allocated it, however many references it has.
//
// Errors: a call that fails has no effect. kExhausted: retry after blocks were freed. kInvalidArgument: the block belongs
// to another allocator or tenant. kFailedPrecondition: the block is free.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/result.h"

namespace cairn {

// One block of a device's KV memory.
struct PhysicalTokenBlock {
  std::uint32_t block_number = 0;  // 0 to total blocks - 1 on its device
  std::uint32_t block_size = 0;    // in tokens
  std::uint32_t device_id = 0;

  friend auto operator<=>(const PhysicalTokenBlock&, const PhysicalTokenBlock&) = default;
};

// Thread safety: one thread at a time.
// Complexity: 12 bytes a block, allocated by create(); the other calls allocate nothing of their own.
class BlockAllocator {
 public:
  // Errors: kInvalidArgument if `total_blocks` or `block_size` is 0.
  static Result<BlockAllocator> create(std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id);

  Result<PhysicalTokenBlock> allocate();
  // Appends `count` blocks to `blocks`, or none if it fails.
  Status allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks);

  // Adds a reference to each block, or to none if it fails. A block that is listed twice gets two references.
  Status retain(std::span<const PhysicalTokenBlock> blocks);
  // Drops a reference of each block, in this order, or of none if it fails. Returns how many blocks became free.
  Result<std::uint32_t> free(std::span<const PhysicalTokenBlock> blocks);

  // At least 1. Errors: kFailedPrecondition if the block is free.
  [[nodiscard]] Result<std::uint64_t> references(const PhysicalTokenBlock& block) const;

  [[nodiscard]] std::uint32_t free_blocks() const { return static_cast<std::uint32_t>(free_.size()); }
  [[nodiscard]] std::uint32_t total_blocks() const { return static_cast<std::uint32_t>(references_.size()); }
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }
  [[nodiscard]] std::uint32_t device_id() const { return device_id_; }

 private:
  BlockAllocator(std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id);
  [[nodiscard]] PhysicalTokenBlock take_front();
  [[nodiscard]] Status check_in_use(const PhysicalTokenBlock& block) const;

  std::uint32_t block_size_;
  std::uint32_t device_id_;
  std::vector<std::uint32_t> free_;        // a stack: the back is handed out next
  std::vector<std::uint64_t> references_;  // by block number; 0: free. 64 bits cannot overflow
};

// What a tenant of a shared allocator can count on and how much it may use, in blocks.
struct TenantShare {
  static constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

  std::string name;  // unique among the tenants of an allocator; used in error messages
  std::uint32_t reserved = 0;
  std::uint32_t limit = kNoLimit;
};

class BlockTenant;
namespace internal {
struct AllocatorState;
}

// A BlockAllocator that several tenants share.
//
// Thread safety: safe from any thread. A BlockManager takes the lock while it holds its own.
// Ownership: shared by its creator, its tenants and their managers.
// Complexity: 8 bytes a block in addition to those of BlockAllocator.
class SharedBlockAllocator : public std::enable_shared_from_this<SharedBlockAllocator> {
 public:
  // Errors: those of BlockAllocator::create().
  static Result<std::shared_ptr<SharedBlockAllocator>> create(std::uint32_t total_blocks, std::uint32_t block_size,
                                                              std::uint32_t device_id);
  SharedBlockAllocator(const SharedBlockAllocator&) = delete;
  SharedBlockAllocator& operator=(const SharedBlockAllocator&) = delete;
  ~SharedBlockAllocator();

  // Adds a tenant. It leaves when the last pointer to it goes; its blocks are freed then.
  // Errors: kInvalidArgument if the share has no name or a limit below its reservation; kAlreadyExists if a tenant has
  // this name; kExhausted if the other tenants have reserved or are using the blocks that it wants to reserve.
  Result<std::shared_ptr<BlockTenant>> join(TenantShare share);

  [[nodiscard]] std::uint32_t free_blocks() const;
  [[nodiscard]] std::uint32_t total_blocks() const { return total_blocks_; }
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }

 private:
  friend class BlockTenant;
  explicit SharedBlockAllocator(BlockAllocator blocks);

  const std::uint32_t total_blocks_;
  const std::uint32_t block_size_;
  const std::unique_ptr<internal::AllocatorState> state_;
};

// One tenant of a shared allocator.
//
// Thread safety: safe from any thread. Each call takes the allocator's lock once, whatever the number of blocks.
// Ownership: shared by one manager and its BlockHolds. Keeps the allocator alive.
class BlockTenant {
 public:
  BlockTenant(const BlockTenant&) = delete;
  BlockTenant& operator=(const BlockTenant&) = delete;
  ~BlockTenant();

  // As in BlockAllocator, within this tenant's share and for its own blocks.
  Result<PhysicalTokenBlock> allocate();
  Status allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks);
  Status retain(std::span<const PhysicalTokenBlock> blocks);
  Result<std::uint32_t> free(std::span<const PhysicalTokenBlock> blocks);

  // The first half of a copy on write: allocates a block if `block` has more than one reference; std::nullopt if it has
  // one. Does not change the references of `block`.
  Result<std::optional<PhysicalTokenBlock>> allocate_if_shared(const PhysicalTokenBlock& block);

  // Whether `count` blocks can be allocated now. A hint: another tenant may come first.
  [[nodiscard]] bool can_allocate(std::uint32_t count) const;
  // Blocks that are charged to this tenant.
  [[nodiscard]] std::uint32_t used_blocks() const;
  [[nodiscard]] const TenantShare& share() const { return share_; }
  [[nodiscard]] const SharedBlockAllocator& allocator() const { return *allocator_; }

 private:
  friend class SharedBlockAllocator;
  friend struct internal::AllocatorState;
  BlockTenant(std::shared_ptr<SharedBlockAllocator> allocator, TenantShare share);

  const std::shared_ptr<SharedBlockAllocator> allocator_;
  const TenantShare share_;
  std::uint32_t used_ = 0;  // guarded by the allocator's lock
};

// The physical blocks of one sequence, in order: entry i is the physical block that holds tokens i * block_size() to
// (i + 1) * block_size() - 1.
//
// Thread safety: a plain value.
// Ownership: names blocks and holds no reference to them; the references belong to the BlockManager that keeps the table. A
// copy of a table shows the moment at which it was made.
// Errors: append() and replace() refuse a block of another block size, replace() also an index past the end. A call that
// fails has no effect.
class BlockTable {
 public:
  explicit BlockTable(std::uint32_t block_size) : block_size_(block_size) {}

  Status append(const PhysicalTokenBlock& block) { return append(std::span(&block, 1)); }
  // Appends all of them, or none if it fails. `blocks` must not be a part of this table.
  Status append(std::span<const PhysicalTokenBlock> blocks);
  Status replace(std::uint32_t logical_index, const PhysicalTokenBlock& block);

  // In logical order; valid until the table changes.
  [[nodiscard]] std::span<const PhysicalTokenBlock> physical_blocks() const { return logical_to_physical_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(logical_to_physical_.size()); }
  [[nodiscard]] bool empty() const { return logical_to_physical_.empty(); }
  [[nodiscard]] std::uint32_t block_size() const { return block_size_; }

 private:
  [[nodiscard]] Status check_size(const PhysicalTokenBlock& block) const;

  std::uint32_t block_size_;
  std::vector<PhysicalTokenBlock> logical_to_physical_;
};

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

// Keeps the block tables of an engine's sequences, over an allocator of its own or one that it shares with
// other managers. For engines without prefix reuse; with it, see KvBlockManager (manager/).
//
// allocate() appends blocks to a sequence, fork() lets two sequences share blocks, make_writable() copies a shared block
// before it is written, free() ends a sequence. The caller chooses the ids of sequences; a sequence exists from its first
// block until it is freed.
//
// Thread safety: safe from any thread. A call takes the manager's lock and, under it, the
// allocator's once. The locks guard tables, not bytes: do not write into a block while another thread forks or frees its
// sequence.
// Ownership: owns one reference to each block of each table, and drops them when it is destroyed. A BlockHold may outlive
// the manager.
// Errors: a call that fails has no effect. kExhausted: no block is free for this tenant; retry after blocks were freed.
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
  // Calls visit() under the manager's lock, without a copy; `visit` must be short and must not call the manager. Returns
  // false, without a call, if the sequence does not exist.
  bool visit_block_table(std::uint64_t sequence_id, const std::function<void(const BlockTable&)>& visit) const;
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
  struct Tables;
  explicit BlockManager(std::shared_ptr<BlockTenant> tenant);

  const std::shared_ptr<BlockTenant> tenant_;
  const std::unique_ptr<Tables> tables_;
};

}  // namespace cairn
