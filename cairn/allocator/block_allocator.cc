#include "cairn/allocator/block_manager.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

std::string name_of(const PhysicalTokenBlock& block) {
  return str_cat("block ", block.block_number, " of device ", block.device_id);
}

}  // namespace

Result<BlockAllocator> BlockAllocator::create(std::uint32_t total_blocks, std::uint32_t block_size,
                                              std::uint32_t device_id) {
  if (total_blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("allocator of device ", device_id,
                                                     " has 0 blocks; give the number of blocks its memory holds"));
  }
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("allocator of device ", device_id, " has blocks of 0 tokens; give the tokens per block"));
  }
  return BlockAllocator(total_blocks, block_size, device_id);
}

BlockAllocator::BlockAllocator(std::uint32_t total_blocks, std::uint32_t block_size, std::uint32_t device_id)
    : block_size_(block_size), device_id_(device_id), references_(total_blocks, 0) {
  free_.reserve(total_blocks);
  for (std::uint32_t number = total_blocks; number > 0; --number) {
    free_.push_back(number - 1);
  }
}

Result<PhysicalTokenBlock> BlockAllocator::allocate() {
  if (free_.empty()) {
    return fail(ErrorCode::kExhausted,
                str_cat("all ", total_blocks(), " blocks of device ", device_id_, " are in use; free some and retry"));
  }
  return take_front();
}

Status BlockAllocator::allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks) {
  if (count > free_blocks()) {
    return fail(ErrorCode::kExhausted,
                str_cat("cannot allocate ", count, " blocks of device ", device_id_, ": ", free_blocks(), " of ",
                        total_blocks(), " are free; free some and retry"));
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.push_back(take_front());
  }
  return Status();
}

PhysicalTokenBlock BlockAllocator::take_front() {
  const std::uint32_t number = free_.back();
  free_.pop_back();
  references_[number] = 1;
  return PhysicalTokenBlock{number, block_size_, device_id_};
}

Status BlockAllocator::retain(std::span<const PhysicalTokenBlock> blocks) {
  for (const PhysicalTokenBlock& block : blocks) {
    CAIRN_TRY(check_in_use(block));
  }
  for (const PhysicalTokenBlock& block : blocks) {
    ++references_[block.block_number];
  }
  return Status();
}

Result<std::uint32_t> BlockAllocator::free(std::span<const PhysicalTokenBlock> blocks) {
  std::uint32_t returned = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (Status in_use = check_in_use(blocks[i]); !in_use) {
      // Undo in reverse order: a block that this call freed is at the back of the list again when its turn comes.
      while (i > 0) {
        const std::uint32_t undone = blocks[--i].block_number;
        if (references_[undone]++ == 0) {
          free_.pop_back();
        }
      }
      return Unexpected(in_use.error());
    }
    const std::uint32_t number = blocks[i].block_number;
    if (--references_[number] == 0) {
      free_.push_back(number);
      ++returned;
    }
  }
  return returned;
}

Result<std::uint64_t> BlockAllocator::references(const PhysicalTokenBlock& block) const {
  CAIRN_TRY(check_in_use(block));
  return references_[block.block_number];
}

Status BlockAllocator::check_in_use(const PhysicalTokenBlock& block) const {
  if (block.device_id != device_id_) {
    return fail(ErrorCode::kInvalidArgument, str_cat(name_of(block), " was given to the allocator of device ",
                                                     device_id_, "; give it to the allocator it came from"));
  }
  if (block.block_size != block_size_) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(name_of(block), " holds ", block.block_size, " tokens and this allocator's hold ", block_size_,
                        "; give it to the allocator it came from"));
  }
  if (block.block_number >= total_blocks()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(name_of(block), " does not exist, the last is ",
                                                     total_blocks() - 1, "; give a block as it was allocated"));
  }
  if (references_[block.block_number] == 0) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(name_of(block), " is free already; give each reference back once"));
  }
  return Status();
}

namespace internal {

// What the tenants of an allocator share. `tenant` is one of them.
struct AllocatorState {
  explicit AllocatorState(BlockAllocator allocator)
      : blocks(std::move(allocator)), holders(blocks.total_blocks(), nullptr) {}

  [[nodiscard]] static std::uint32_t unmet_of(const BlockTenant& tenant) {
    return tenant.share_.reserved - std::min(tenant.share_.reserved, tenant.used_);
  }
  [[nodiscard]] std::uint32_t available(const BlockTenant& tenant) const CAIRN_REQUIRES(mutex);
  [[nodiscard]] Status check_available(const BlockTenant& tenant, std::uint32_t count) const CAIRN_REQUIRES(mutex);
  [[nodiscard]] Status check_held(const BlockTenant& tenant, std::span<const PhysicalTokenBlock> taken) const
      CAIRN_REQUIRES(mutex);
  void set_used(BlockTenant& tenant, std::uint32_t used) CAIRN_REQUIRES(mutex);
  [[nodiscard]] Result<PhysicalTokenBlock> allocate_one(BlockTenant& tenant) CAIRN_REQUIRES(mutex);

  mutable Mutex mutex{LockRank::kAllocator};
  BlockAllocator blocks CAIRN_GUARDED_BY(mutex);
  // By block number: the tenant that allocated the block last. Only compared, never dereferenced: a free block may still
  // name a tenant that has left.
  std::vector<const BlockTenant*> holders CAIRN_GUARDED_BY(mutex);
  std::vector<const BlockTenant*> tenants CAIRN_GUARDED_BY(mutex);
  // Blocks that are reserved and not used, of all tenants together. Never more than the free blocks, so that every
  // reservation can be served.
  std::uint32_t unmet CAIRN_GUARDED_BY(mutex) = 0;
};

std::uint32_t AllocatorState::available(const BlockTenant& tenant) const {
  const std::uint32_t kept_for_others = unmet - unmet_of(tenant);
  return std::min(tenant.share_.limit - tenant.used_, blocks.free_blocks() - kept_for_others);
}

Status AllocatorState::check_available(const BlockTenant& tenant, std::uint32_t count) const {
  if (count <= available(tenant)) {
    return Status();
  }
  const TenantShare& share = tenant.share_;
  if (count > share.limit - tenant.used_) {
    return fail(ErrorCode::kExhausted,
                str_cat("tenant '", share.name, "' requested ", count, " blocks and uses ", tenant.used_,
                        " of its limit of ", share.limit, "; free some of its own and retry"));
  }
  return fail(ErrorCode::kExhausted,
              str_cat("tenant '", share.name, "' requested ", count, " blocks where ", blocks.free_blocks(), " of ",
                      blocks.total_blocks(), " are free and ", unmet - unmet_of(tenant),
                      " of them reserved by others; free some and retry"));
}

Status AllocatorState::check_held(const BlockTenant& tenant, std::span<const PhysicalTokenBlock> taken) const {
  for (const PhysicalTokenBlock& block : taken) {
    // BlockAllocator refuses a number past the end.
    if (block.block_number < holders.size() && holders[block.block_number] != &tenant) {
      return fail(ErrorCode::kInvalidArgument, str_cat("tenant '", tenant.share_.name, "' does not hold ",
                                                       name_of(block), "; give it to the tenant that allocated it"));
    }
  }
  return Status();
}

void AllocatorState::set_used(BlockTenant& tenant, std::uint32_t used) {
  unmet -= unmet_of(tenant);
  tenant.used_ = used;
  unmet += unmet_of(tenant);
}

Result<PhysicalTokenBlock> AllocatorState::allocate_one(BlockTenant& tenant) {
  CAIRN_TRY(check_available(tenant, 1));
  Result<PhysicalTokenBlock> block = blocks.allocate();
  CAIRN_CHECK(block.has_value(), "an available block is free");
  holders[block->block_number] = &tenant;
  set_used(tenant, tenant.used_ + 1);
  return block;
}

}  // namespace internal

Result<std::shared_ptr<SharedBlockAllocator>> SharedBlockAllocator::create(std::uint32_t total_blocks,
                                                                           std::uint32_t block_size,
                                                                           std::uint32_t device_id) {
  CAIRN_TRY_ASSIGN(BlockAllocator blocks, BlockAllocator::create(total_blocks, block_size, device_id));
  return std::shared_ptr<SharedBlockAllocator>(new SharedBlockAllocator(std::move(blocks)));
}

SharedBlockAllocator::SharedBlockAllocator(BlockAllocator blocks)
    : total_blocks_(blocks.total_blocks()),
      block_size_(blocks.block_size()),
      state_(std::make_unique<internal::AllocatorState>(std::move(blocks))) {}

SharedBlockAllocator::~SharedBlockAllocator() = default;

Result<std::shared_ptr<BlockTenant>> SharedBlockAllocator::join(TenantShare share) {
  if (share.name.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the tenant has no name; give it a unique one");
  }
  if (share.limit < share.reserved) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("tenant '", share.name, "' reserves ", share.reserved, " blocks and is limited to ",
                        share.limit, "; raise its limit or reserve less"));
  }
  const MutexLock lock(state_->mutex);
  std::uint32_t reserved = 0;
  for (const BlockTenant* tenant : state_->tenants) {
    if (tenant->share().name == share.name) {
      return fail(ErrorCode::kAlreadyExists,
                  str_cat("tenant '", share.name, "' is on this allocator already; choose another name"));
    }
    reserved += tenant->share().reserved;
  }
  if (share.reserved > total_blocks_ - reserved) {
    return fail(ErrorCode::kExhausted,
                str_cat("tenant '", share.name, "' reserves ", share.reserved, " blocks where others have reserved ",
                        reserved, " of ", total_blocks_, "; reserve less or let another leave"));
  }
  if (share.reserved > state_->blocks.free_blocks() - state_->unmet) {
    return fail(
        ErrorCode::kExhausted,
        str_cat("tenant '", share.name, "' reserves ", share.reserved, " blocks where others use all but ",
                state_->blocks.free_blocks() - state_->unmet, "; join before them or retry after they freed some"));
  }
  std::shared_ptr<BlockTenant> tenant(new BlockTenant(shared_from_this(), std::move(share)));
  state_->tenants.push_back(tenant.get());
  state_->unmet += tenant->share().reserved;
  return tenant;
}

std::uint32_t SharedBlockAllocator::free_blocks() const {
  const MutexLock lock(state_->mutex);
  return state_->blocks.free_blocks();
}

BlockTenant::BlockTenant(std::shared_ptr<SharedBlockAllocator> allocator, TenantShare share)
    : allocator_(std::move(allocator)), share_(std::move(share)) {}

BlockTenant::~BlockTenant() {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  BlockAllocator& blocks = state.blocks;
  for (std::uint32_t number = blocks.total_blocks(); used_ > 0 && number > 0; --number) {
    const PhysicalTokenBlock block{number - 1, blocks.block_size(), blocks.device_id()};
    if (state.holders[block.block_number] != this) {
      continue;
    }
    Result<std::uint64_t> references = blocks.references(block);
    if (!references) {
      continue;  // it is free
    }
    for (; *references > 0; --*references) {
      CAIRN_CHECK(blocks.free(std::span(&block, 1)).has_value(), "a block in use can be freed");
    }
    state.set_used(*this, used_ - 1);
  }
  CAIRN_CHECK(used_ == 0, "every block charged to a tenant is held by it");
  state.unmet -= state.unmet_of(*this);
  std::erase(state.tenants, this);
}

Result<PhysicalTokenBlock> BlockTenant::allocate() {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  return state.allocate_one(*this);
}

Status BlockTenant::allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks) {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  CAIRN_TRY(state.check_available(*this, count));
  const std::size_t before = blocks.size();
  CAIRN_CHECK(state.blocks.allocate(count, blocks).has_value(), "available blocks are free");
  for (const PhysicalTokenBlock& block : std::span(blocks).subspan(before)) {
    state.holders[block.block_number] = this;
  }
  state.set_used(*this, used_ + count);
  return Status();
}

Status BlockTenant::retain(std::span<const PhysicalTokenBlock> blocks) {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  CAIRN_TRY(state.check_held(*this, blocks));
  return state.blocks.retain(blocks);
}

Result<std::uint32_t> BlockTenant::free(std::span<const PhysicalTokenBlock> blocks) {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  CAIRN_TRY(state.check_held(*this, blocks));
  Result<std::uint32_t> returned = state.blocks.free(blocks);
  if (returned) {
    state.set_used(*this, used_ - *returned);
  }
  return returned;
}

Result<std::optional<PhysicalTokenBlock>> BlockTenant::allocate_if_shared(const PhysicalTokenBlock& block) {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  CAIRN_TRY(state.check_held(*this, std::span(&block, 1)));
  CAIRN_TRY_ASSIGN(std::uint64_t references, state.blocks.references(block));
  if (references == 1) {
    return std::optional<PhysicalTokenBlock>();
  }
  CAIRN_TRY_ASSIGN(PhysicalTokenBlock fresh, state.allocate_one(*this));
  return std::optional(fresh);
}

bool BlockTenant::can_allocate(std::uint32_t count) const {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  return count <= state.available(*this);
}

std::uint32_t BlockTenant::used_blocks() const {
  internal::AllocatorState& state = *allocator_->state_;
  const MutexLock lock(state.mutex);
  return used_;
}

}  // namespace cairn
