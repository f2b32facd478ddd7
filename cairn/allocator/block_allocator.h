// Who holds which physical block of one device's KV memory: no bytes, only numbers.
//
//   BlockAllocator        the free list and the reference counts; one thread
//   SharedBlockAllocator  the same under a lock, divided among tenants
//   BlockTenant           one tenant's way into it: all calls that take or give blocks
//
// Order:   blocks are first handed out as 0, 1, 2, ...; a freed block goes to the front and is the next to be handed
// out. Sharing: a block is born with one reference; retain() adds one, free() gives one back, and the last one returns
// the
//          block to the pool.
// Tenants: each may reserve blocks, which it can always get whatever the others did, and has a limit that it never
//          exceeds. What is neither reserved nor used goes to whoever asks first. A block is charged once, to the
//          tenant that allocated it, however many references it has.
// Fails:   an operation that returns an error has changed nothing. kExhausted: retry after something was freed.
//          kInvalidArgument: the block is not of this allocator, or not this tenant's. kFailedPrecondition: it is free.
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

// Threads: one at a time. Memory: 12 bytes a block, all taken by create(); the calls below take none of their own.
class BlockAllocator {
 public:
  // kInvalidArgument: no blocks, or blocks of no tokens.
  static Result<BlockAllocator> create(std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id);

  Result<PhysicalTokenBlock> allocate();
  // Adds `count` blocks to the end of `blocks`, all or none.
  Status allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks);

  // One more reference to each, all or none. A block that stands twice gets two.
  Status retain(std::span<const PhysicalTokenBlock> blocks);
  // One reference of each back, in this order, all or none; says how many blocks returned to the pool.
  Result<std::uint32_t> free(std::span<const PhysicalTokenBlock> blocks);

  // Of a block in use, so at least 1.
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
  std::vector<std::uint32_t> free_;        // a stack: its back is the front of the free list
  std::vector<std::uint64_t> references_;  // by block number; 0 is free. 64 bits: no caller can overflow it
};

// What a tenant of a shared allocator is promised and allowed, in blocks.
struct TenantShare {
  static constexpr std::uint32_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

  std::string name;  // unique among the tenants of an allocator; what errors call it
  std::uint32_t reserved = 0;
  std::uint32_t limit = kNoLimit;
};

class BlockTenant;

// Owner:   its creator, its tenants and their managers, together. Memory: 8 bytes a block more.
// Threads: any, at once. Its lock (LockRank::kAllocator) may be taken under a manager's, never the other way round.
class SharedBlockAllocator : public std::enable_shared_from_this<SharedBlockAllocator> {
 public:
  // Fails as BlockAllocator::create().
  static Result<std::shared_ptr<SharedBlockAllocator>> create(std::uint32_t total_blocks, std::uint32_t block_size,
                                                              std::uint32_t device_id);

  // The tenant leaves when the last pointer to it goes, and all it still has returns to the pool.
  // kInvalidArgument: no name, or a limit below the reservation. kAlreadyExists: a tenant has this name. kExhausted:
  // the reservation does not fit beside those of the others, or others are using its blocks now.
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
  // By block number: who allocated it last. Only compared: a free block may still show a tenant that has left.
  std::vector<const BlockTenant*> holders_ CAIRN_GUARDED_BY(mutex_);
  std::vector<const BlockTenant*> tenants_ CAIRN_GUARDED_BY(mutex_);
  // Reserved and not yet used, over all tenants. Never above the free blocks: that is what keeps the promise.
  std::uint32_t unmet_ CAIRN_GUARDED_BY(mutex_) = 0;
};

// Owner:   one manager, and the blocks it lends to copies in flight (BlockHold). Keeps the allocator alive.
// Threads: any, at once. Each call locks the allocator once, whatever the number of blocks.
class BlockTenant {
 public:
  BlockTenant(const BlockTenant&) = delete;
  BlockTenant& operator=(const BlockTenant&) = delete;
  ~BlockTenant();

  // As in BlockAllocator, within this tenant's share and for its own blocks only.
  Result<PhysicalTokenBlock> allocate();
  Status allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks);
  Status retain(std::span<const PhysicalTokenBlock> blocks);
  Result<std::uint32_t> free(std::span<const PhysicalTokenBlock> blocks);

  // The first half of a copy on write: a new block where `block` has other references than the caller's, nothing where
  // it has none. References of `block` stay as they are.
  Result<std::optional<PhysicalTokenBlock>> allocate_if_shared(const PhysicalTokenBlock& block);

  // Whether `count` blocks could be had now; with other tenants about, a hint.
  [[nodiscard]] bool can_allocate(std::uint32_t count) const;
  // Physical blocks charged to this tenant.
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
