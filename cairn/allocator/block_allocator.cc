#include "cairn/allocator/block_allocator.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
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

Result<std::shared_ptr<SharedBlockAllocator>> SharedBlockAllocator::create(std::uint32_t total_blocks,
                                                                           std::uint32_t block_size,
                                                                           std::uint32_t device_id) {
  CAIRN_TRY_ASSIGN(BlockAllocator blocks, BlockAllocator::create(total_blocks, block_size, device_id));
  return std::shared_ptr<SharedBlockAllocator>(new SharedBlockAllocator(std::move(blocks)));
}

SharedBlockAllocator::SharedBlockAllocator(BlockAllocator blocks)
    : total_blocks_(blocks.total_blocks()),
      block_size_(blocks.block_size()),
      blocks_(std::move(blocks)),
      holders_(total_blocks_, nullptr) {}

Result<std::shared_ptr<BlockTenant>> SharedBlockAllocator::join(TenantShare share) {
  if (share.name.empty()) {
    return fail(ErrorCode::kInvalidArgument, "tenant has no name; give one that tells it from the others");
  }
  if (share.limit < share.reserved) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("tenant '", share.name, "' reserves ", share.reserved, " blocks and is limited to ",
                        share.limit, "; raise its limit or reserve less"));
  }
  const MutexLock lock(mutex_);
  std::uint32_t reserved = 0;
  for (const BlockTenant* tenant : tenants_) {
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
  if (share.reserved > blocks_.free_blocks() - unmet_) {
    return fail(ErrorCode::kExhausted,
                str_cat("tenant '", share.name, "' reserves ", share.reserved, " blocks where others use all but ",
                        blocks_.free_blocks() - unmet_, "; join before them or retry after they freed some"));
  }
  std::shared_ptr<BlockTenant> tenant(new BlockTenant(shared_from_this(), std::move(share)));
  tenants_.push_back(tenant.get());
  unmet_ += tenant->share().reserved;
  return tenant;
}

std::uint32_t SharedBlockAllocator::free_blocks() const {
  const MutexLock lock(mutex_);
  return blocks_.free_blocks();
}

BlockTenant::BlockTenant(std::shared_ptr<SharedBlockAllocator> allocator, TenantShare share)
    : allocator_(std::move(allocator)), share_(std::move(share)) {}

BlockTenant::~BlockTenant() {
  const MutexLock lock(allocator_->mutex_);
  BlockAllocator& blocks = allocator_->blocks_;
  for (std::uint32_t number = blocks.total_blocks(); used_ > 0 && number > 0; --number) {
    const PhysicalTokenBlock block{number - 1, blocks.block_size(), blocks.device_id()};
    if (allocator_->holders_[block.block_number] != this) {
      continue;
    }
    Result<std::uint64_t> references = blocks.references(block);
    if (!references) {
      continue;  // it is free
    }
    for (; *references > 0; --*references) {
      CAIRN_CHECK(blocks.free(std::span(&block, 1)).has_value(), "a block in use can be freed");
    }
    set_used(used_ - 1);
  }
  CAIRN_CHECK(used_ == 0, "every block charged to a tenant is held by it");
  allocator_->unmet_ -= unmet();
  std::erase(allocator_->tenants_, this);
}

Result<PhysicalTokenBlock> BlockTenant::allocate() {
  const MutexLock lock(allocator_->mutex_);
  return allocate_one();
}

Result<PhysicalTokenBlock> BlockTenant::allocate_one() {
  CAIRN_TRY(check_available(1));
  Result<PhysicalTokenBlock> block = allocator_->blocks_.allocate();
  CAIRN_CHECK(block.has_value(), "an available block is free");
  allocator_->holders_[block->block_number] = this;
  set_used(used_ + 1);
  return block;
}

Status BlockTenant::allocate(std::uint32_t count, std::vector<PhysicalTokenBlock>& blocks) {
  const MutexLock lock(allocator_->mutex_);
  CAIRN_TRY(check_available(count));
  const std::size_t before = blocks.size();
  CAIRN_CHECK(allocator_->blocks_.allocate(count, blocks).has_value(), "available blocks are free");
  for (const PhysicalTokenBlock& block : std::span(blocks).subspan(before)) {
    allocator_->holders_[block.block_number] = this;
  }
  set_used(used_ + count);
  return Status();
}

Status BlockTenant::retain(std::span<const PhysicalTokenBlock> blocks) {
  const MutexLock lock(allocator_->mutex_);
  CAIRN_TRY(check_held(blocks));
  return allocator_->blocks_.retain(blocks);
}

Result<std::uint32_t> BlockTenant::free(std::span<const PhysicalTokenBlock> blocks) {
  const MutexLock lock(allocator_->mutex_);
  CAIRN_TRY(check_held(blocks));
  Result<std::uint32_t> returned = allocator_->blocks_.free(blocks);
  if (returned) {
    set_used(used_ - *returned);
  }
  return returned;
}

Result<std::optional<PhysicalTokenBlock>> BlockTenant::allocate_if_shared(const PhysicalTokenBlock& block) {
  const MutexLock lock(allocator_->mutex_);
  CAIRN_TRY(check_held(std::span(&block, 1)));
  CAIRN_TRY_ASSIGN(std::uint64_t references, allocator_->blocks_.references(block));
  if (references == 1) {
    return std::optional<PhysicalTokenBlock>();
  }
  CAIRN_TRY_ASSIGN(PhysicalTokenBlock fresh, allocate_one());
  return std::optional(fresh);
}

bool BlockTenant::can_allocate(std::uint32_t count) const {
  const MutexLock lock(allocator_->mutex_);
  return count <= available();
}

std::uint32_t BlockTenant::used_blocks() const {
  const MutexLock lock(allocator_->mutex_);
  return used_;
}

std::uint32_t BlockTenant::unmet() const { return share_.reserved - std::min(share_.reserved, used_); }

std::uint32_t BlockTenant::available() const {
  const std::uint32_t kept_for_others = allocator_->unmet_ - unmet();
  return std::min(share_.limit - used_, allocator_->blocks_.free_blocks() - kept_for_others);
}

Status BlockTenant::check_available(std::uint32_t count) const {
  if (count <= available()) {
    return Status();
  }
  if (count > share_.limit - used_) {
    return fail(ErrorCode::kExhausted,
                str_cat("tenant '", share_.name, "' asked for ", count, " blocks and uses ", used_, " of its limit of ",
                        share_.limit, "; free some of its own and retry"));
  }
  return fail(ErrorCode::kExhausted,
              str_cat("tenant '", share_.name, "' asked for ", count, " blocks where ",
                      allocator_->blocks_.free_blocks(), " of ", allocator_->total_blocks_, " are free and ",
                      allocator_->unmet_ - unmet(), " of them reserved by others; free some and retry"));
}

Status BlockTenant::check_held(std::span<const PhysicalTokenBlock> blocks) const {
  for (const PhysicalTokenBlock& block : blocks) {
    // BlockAllocator refuses a number past the end.
    if (block.block_number < allocator_->total_blocks_ && allocator_->holders_[block.block_number] != this) {
      return fail(ErrorCode::kInvalidArgument, str_cat("tenant '", share_.name, "' does not hold ", name_of(block),
                                                       "; give it to the tenant that allocated it"));
    }
  }
  return Status();
}

void BlockTenant::set_used(std::uint32_t used) {
  allocator_->unmet_ -= unmet();
  used_ = used;
  allocator_->unmet_ += unmet();
}

}  // namespace cairn
