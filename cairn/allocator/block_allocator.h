// Allocators of the blocks of one device's KV memory, with reference counts. They manage block numbers, not bytes.
//
//   BlockAllocator        the free list and the reference counts, for one thread
//   SharedBlockAllocator  the same under a lock, divided among tenants
//   BlockTenant           one tenant of a shared allocator: all calls that allocate and free blocks
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

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/allocator/block_table.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/base/thread_annotations.h"

namespace cairn {

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

// A BlockAllocator that several tenants share.
//
// Thread safety: safe from any thread. A BlockManager takes the lock (LockRank::kAllocator) while it holds its own.
// Ownership: shared by its creator, its tenants and their managers.
// Complexity: 8 bytes a block in addition to those of BlockAllocator.
class SharedBlockAllocator : public std::enable_shared_from_this<SharedBlockAllocator> {
 public:
  // Errors: those of BlockAllocator::create().
  static Result<std::shared_ptr<SharedBlockAllocator>> create(std::uint32_t total_blocks, std::uint32_t block_size,
                                                              std::uint32_t device_id);

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
  mutable Mutex mutex_{LockRank::kAllocator};
  BlockAllocator blocks_ CAIRN_GUARDED_BY(mutex_);
  // By block number: the tenant that allocated the block last. Only compared, never dereferenced: a free block may still
  // name a tenant that has left.
  std::vector<const BlockTenant*> holders_ CAIRN_GUARDED_BY(mutex_);
  std::vector<const BlockTenant*> tenants_ CAIRN_GUARDED_BY(mutex_);
  // Blocks that are reserved and not used, of all tenants together. Never more than the free blocks, so that every
  // reservation can be served.
  std::uint32_t unmet_ CAIRN_GUARDED_BY(mutex_) = 0;
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
  BlockTenant(std::shared_ptr<SharedBlockAllocator> allocator, TenantShare share);

  [[nodiscard]] std::uint32_t unmet() const CAIRN_REQUIRES(allocator_->mutex_);
  [[nodiscard]] std::uint32_t available() const CAIRN_REQUIRES(allocator_->mutex_);
  [[nodiscard]] Status check_available(std::uint32_t count) const CAIRN_REQUIRES(allocator_->mutex_);
  [[nodiscard]] Status check_held(std::span<const PhysicalTokenBlock> blocks) const CAIRN_REQUIRES(allocator_->mutex_);
  void set_used(std::uint32_t used) CAIRN_REQUIRES(allocator_->mutex_);
  [[nodiscard]] Result<PhysicalTokenBlock> allocate_one() CAIRN_REQUIRES(allocator_->mutex_);

  const std::shared_ptr<SharedBlockAllocator> allocator_;
  const TenantShare share_;
  std::uint32_t used_ CAIRN_GUARDED_BY(allocator_->mutex_) = 0;
};

}  // namespace cairn
