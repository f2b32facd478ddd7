#include "cairn/allocator/block_manager.h"

#include <unordered_map>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"

namespace cairn {

struct BlockManager::Tables {
  mutable Mutex mutex{LockRank::kBlockManager};
  std::unordered_map<std::uint64_t, BlockTable> by_sequence CAIRN_GUARDED_BY(mutex);  // none is empty
  std::vector<PhysicalTokenBlock> batch CAIRN_GUARDED_BY(mutex);  // of one allocate(); here to keep its memory

  // Returns the logical index of the first of the blocks.
  std::uint32_t append(std::uint64_t sequence_id, std::uint32_t block_size, std::span<const PhysicalTokenBlock> blocks)
      CAIRN_REQUIRES(mutex);
};

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

BlockManager::BlockManager(std::shared_ptr<BlockTenant> tenant)
    : tenant_(std::move(tenant)), tables_(std::make_unique<Tables>()) {}

BlockManager::~BlockManager() {
  // Freed here, because a BlockHold may keep the tenant alive. No lock is needed: no other thread uses the manager any more.
  while (!tables_->by_sequence.empty()) {
    free(tables_->by_sequence.begin()->first);
  }
}

Result<PhysicalTokenBlock> BlockManager::allocate(std::uint64_t sequence_id) {
  const MutexLock lock(tables_->mutex);
  Result<PhysicalTokenBlock> block = tenant_->allocate();
  if (block) {
    tables_->append(sequence_id, block_size(), std::span(&*block, 1));
  }
  return block;
}

Result<std::uint32_t> BlockManager::allocate(std::uint64_t sequence_id, std::uint32_t count) {
  const MutexLock lock(tables_->mutex);
  tables_->batch.clear();
  CAIRN_TRY(tenant_->allocate(count, tables_->batch));
  return tables_->append(sequence_id, block_size(), tables_->batch);
}

std::uint32_t BlockManager::Tables::append(std::uint64_t sequence_id, std::uint32_t block_size,
                                           std::span<const PhysicalTokenBlock> blocks) {
  auto found = by_sequence.find(sequence_id);
  if (found == by_sequence.end()) {
    if (blocks.empty()) {
      return 0;
    }
    found = by_sequence.try_emplace(sequence_id, block_size).first;
  }
  const std::uint32_t first = found->second.size();
  CAIRN_CHECK(found->second.append(blocks).has_value(), "a table takes the blocks of its own allocator");
  return first;
}

std::uint32_t BlockManager::free_returning_count(std::uint64_t sequence_id) {
  const MutexLock lock(tables_->mutex);
  const auto found = tables_->by_sequence.find(sequence_id);
  if (found == tables_->by_sequence.end()) {
    return 0;
  }
  const Result<std::uint32_t> returned = tenant_->free(found->second.physical_blocks());
  CAIRN_CHECK(returned.has_value(), "a table has a reference to each of its blocks");
  tables_->by_sequence.erase(found);
  return *returned;
}

Status BlockManager::fork(std::uint64_t parent_id, std::uint64_t child_id) {
  const MutexLock lock(tables_->mutex);
  const auto parent = tables_->by_sequence.find(parent_id);
  if (parent == tables_->by_sequence.end()) {
    return fail(ErrorCode::kNotFound, str_cat("sequence ", parent_id, " to fork into ", child_id,
                                              " does not exist; allocate its first block first"));
  }
  if (tables_->by_sequence.contains(child_id)) {
    return fail(ErrorCode::kAlreadyExists, str_cat("sequence ", child_id, " to fork from ", parent_id,
                                                   " exists; free it or choose another number"));
  }
  BlockTable shared = parent->second;
  CAIRN_CHECK(tenant_->retain(shared.physical_blocks()).has_value(), "a table's blocks are in use");
  tables_->by_sequence.emplace(child_id, std::move(shared));
  return Status();
}

Result<WritableBlock> BlockManager::make_writable(std::uint64_t sequence_id, std::uint32_t logical_index) {
  const MutexLock lock(tables_->mutex);
  const auto found = tables_->by_sequence.find(sequence_id);
  if (found == tables_->by_sequence.end()) {
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

bool BlockManager::visit_block_table(std::uint64_t sequence_id,
                                     const std::function<void(const BlockTable&)>& visit) const {
  const MutexLock lock(tables_->mutex);
  const auto found = tables_->by_sequence.find(sequence_id);
  if (found == tables_->by_sequence.end()) {
    return false;
  }
  visit(found->second);
  return true;
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

Status BlockTable::append(std::span<const PhysicalTokenBlock> blocks) {
  for (const PhysicalTokenBlock& block : blocks) {
    CAIRN_TRY(check_size(block));
  }
  logical_to_physical_.insert(logical_to_physical_.end(), blocks.begin(), blocks.end());
  return Status();
}

Status BlockTable::replace(std::uint32_t logical_index, const PhysicalTokenBlock& block) {
  if (logical_index >= size()) {
    return fail(ErrorCode::kOutOfRange, str_cat("logical block ", logical_index, " of a table of ", size(),
                                                " blocks cannot be replaced; append it instead"));
  }
  CAIRN_TRY(check_size(block));
  logical_to_physical_[logical_index] = block;
  return Status();
}

Status BlockTable::check_size(const PhysicalTokenBlock& block) const {
  if (block.block_size == block_size_) {
    return Status();
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat("block ", block.block_number, " of device ", block.device_id, " holds ", block.block_size,
                      " tokens and the table's blocks hold ", block_size_, "; take it from the table's own allocator"));
}

}  // namespace cairn
