// PhysicalTokenBlock: one block of a device's KV memory. BlockTable: the physical blocks of one sequence, in order.
//
// Entry i of a table is the physical block that holds tokens i * block_size() to (i + 1) * block_size() - 1.
//
// Thread safety: plain values.
// Ownership: a table names blocks and holds no reference to them; the references belong to the BlockManager that keeps
// the table. A copy of a table shows the moment at which it was made.
// Errors: append() and replace() refuse a block of another block size, replace() also an index past the end. A call that
// fails has no effect.
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

}  // namespace cairn
