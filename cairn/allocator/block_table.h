// PhysicalTokenBlock: one block of a device's KV memory. BlockTable: where the logical blocks of one sequence live.
//
// Does:    entry i of a table is the physical block that holds tokens i * block_size() to (i + 1) * block_size() - 1.
// Owner:   a plain value. It names blocks and holds no reference to them: those belong to whoever keeps the table
//          (block_manager.h), and a copy is only a picture of the moment.
// Threads: a plain value.
// Fails:   append() and replace() of a block with another block size, replace() past the end; the table is as it was.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"

namespace cairn {

struct PhysicalTokenBlock {
  std::uint32_t block_number = 0;  // 0 to total blocks - 1 on its device
  std::uint32_t block_size = 0;    // in tokens
  std::uint32_t device_id = 0;

  friend auto operator<=>(const PhysicalTokenBlock&, const PhysicalTokenBlock&) = default;
};

class BlockTable {
 public:
  explicit BlockTable(std::uint32_t block_size) : block_size_(block_size) {}

  Status append(const PhysicalTokenBlock& block) { return append(std::span(&block, 1)); }
  // All of them or none. `blocks` is no part of this table.
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

}  // namespace cairn
