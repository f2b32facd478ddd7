#include "cairn/allocator/block_table.h"

#include "cairn/base/str_cat.h"

namespace cairn {

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
