#include "cairn/allocator/block_manager.h"

#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

BlockHold::BlockHold(std::shared_ptr<BlockTenant> tenant, const PhysicalTokenBlock& block)
    : tenant_(std::move(tenant)), block_(block) {}

BlockHold& BlockHold::operator=(BlockHold&& other) noexcept {
  BlockHold taken(std::move(other));
  std::swap(tenant_, taken.tenant_);
  std::swap(block_, taken.block_);
  return *this;
}

BlockHold::~BlockHold() {
  if (tenant_ != nullptr) {
    CAIRN_CHECK(tenant_->free(std::span(&block_, 1)).has_value(), "a hold has a reference to its block");
  }
}

Result<std::unique_ptr<BlockManager>> BlockManager::create(std::uint32_t total_blocks, std::uint32_t block_size,
                                                           std::uint32_t device_id) {
  CAIRN_TRY_ASSIGN(std::shared_ptr<SharedBlockAllocator> allocator,
                   SharedBlockAllocator::create(total_blocks, block_size, device_id));
  return create_shared(allocator, TenantShare{.name = "owner", .reserved = total_blocks});
}

Result<std::unique_ptr<BlockManager>> BlockManager::create_shared(
    const std::shared_ptr<SharedBlockAllocator>& allocator, TenantShare share) {
  if (allocator == nullptr) {
    return fail(ErrorCode::kInvalidArgument, str_cat("tenant '", share.name, "' was given no allocator; create one"));
  }
  CAIRN_TRY_ASSIGN(std::shared_ptr<BlockTenant> tenant, allocator->join(std::move(share)));
  return std::unique_ptr<BlockManager>(new BlockManager(std::move(tenant)));
}

BlockManager::~BlockManager() {
  // Freed here, because a BlockHold may keep the tenant alive. No lock is needed: no other thread uses the manager any more.
  while (!tables_.empty()) {
    free(tables_.begin()->first);
  }
}

Result<PhysicalTokenBlock> BlockManager::allocate(std::uint64_t sequence_id) {
  const MutexLock lock(mutex_);
  Result<PhysicalTokenBlock> block = tenant_->allocate();
  if (block) {
    append(sequence_id, std::span(&*block, 1));
  }
  return block;
}

Result<std::uint32_t> BlockManager::allocate(std::uint64_t sequence_id, std::uint32_t count) {
  const MutexLock lock(mutex_);
  batch_.clear();
  CAIRN_TRY(tenant_->allocate(count, batch_));
  return append(sequence_id, batch_);
}

// Returns the logical index of the first of them.
std::uint32_t BlockManager::append(std::uint64_t sequence_id, std::span<const PhysicalTokenBlock> blocks) {
  auto found = tables_.find(sequence_id);
  if (found == tables_.end()) {
    if (blocks.empty()) {
      return 0;
    }
    found = tables_.try_emplace(sequence_id, block_size()).first;
  }
  const std::uint32_t first = found->second.size();
  CAIRN_CHECK(found->second.append(blocks).has_value(), "a table takes the blocks of its own allocator");
  return first;
}

std::uint32_t BlockManager::free_returning_count(std::uint64_t sequence_id) {
  const MutexLock lock(mutex_);
  const auto found = tables_.find(sequence_id);
  if (found == tables_.end()) {
    return 0;
  }
  const Result<std::uint32_t> returned = tenant_->free(found->second.physical_blocks());
  CAIRN_CHECK(returned.has_value(), "a table has a reference to each of its blocks");
  tables_.erase(found);
  return *returned;
}

Status BlockManager::fork(std::uint64_t parent_id, std::uint64_t child_id) {
  const MutexLock lock(mutex_);
  const auto parent = tables_.find(parent_id);
  if (parent == tables_.end()) {
    return fail(ErrorCode::kNotFound, str_cat("sequence ", parent_id, " to fork into ", child_id,
                                              " does not exist; allocate its first block first"));
  }
  if (tables_.contains(child_id)) {
    return fail(ErrorCode::kAlreadyExists, str_cat("sequence ", child_id, " to fork from ", parent_id,
                                                   " exists; free it or choose another number"));
  }
  BlockTable shared = parent->second;
  CAIRN_CHECK(tenant_->retain(shared.physical_blocks()).has_value(), "a table's blocks are in use");
  tables_.emplace(child_id, std::move(shared));
  return Status();
}

Result<WritableBlock> BlockManager::make_writable(std::uint64_t sequence_id, std::uint32_t logical_index) {
  const MutexLock lock(mutex_);
  const auto found = tables_.find(sequence_id);
  if (found == tables_.end()) {
    return fail(ErrorCode::kNotFound,
                str_cat("sequence ", sequence_id, " to write to does not exist; allocate its first block before"));
  }
  BlockTable& table = found->second;
  if (logical_index >= table.size()) {
    return fail(ErrorCode::kOutOfRange, str_cat("logical block ", logical_index, " of sequence ", sequence_id,
                                                " is past its ", table.size(), " blocks; allocate it first"));
  }
  const PhysicalTokenBlock current = table.physical_blocks()[logical_index];
  CAIRN_TRY_ASSIGN(std::optional<PhysicalTokenBlock> fresh, tenant_->allocate_if_shared(current));
  if (!fresh.has_value()) {
    return WritableBlock{current, std::nullopt};
  }
  CAIRN_CHECK(table.replace(logical_index, *fresh).has_value(), "a table takes the blocks of its own allocator");
  return WritableBlock{*fresh, BlockHold(tenant_, current)};  // the hold takes over the table's reference
}

std::optional<BlockTable> BlockManager::get_block_table(std::uint64_t sequence_id) const {
  std::optional<BlockTable> copy;
  visit_block_table(sequence_id, [&copy](const BlockTable& table) { copy = table; });
  return copy;
}

std::uint32_t BlockManager::blocks_for_sequence(std::uint64_t sequence_id) const {
  std::uint32_t blocks = 0;
  visit_block_table(sequence_id, [&blocks](const BlockTable& table) { blocks = table.size(); });
  return blocks;
}

}  // namespace cairn
