// CopyPlan: how blocks are copied from one layout to another. Computed once for two layouts, and then expanded for lists of
// blocks.
//
// A block is cut into boxes: sets of equal rows at regular steps in both layouts. There is one box for all layers if the steps
// are regular, and one for each layer if each has its own region. A box knows the longest run that is contiguous on both sides,
// so that there are as few copies as possible. The layouts have the same shape in any arrangement, or differ only in heads if a
// part of the heads is copied (tensor-parallel splits).
//
// Thread safety: immutable.
// Ownership: shared; holds both layouts.
// Errors: shapes that do not fit together, heads or layers beyond a shape, two different layouts of the same memory.
// Complexity: make() takes some microseconds for each layer, expand() some tens of nanoseconds for each run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"

namespace cairn {

// A part of a block. Rows are numbered in the whole block, so that the checksums of parts add up.
struct BlockPart {
  std::uint32_t first_layer = 0;
  std::uint32_t layers = 0;       // 0: all, from first_layer on
  std::uint32_t source_head = 0;  // the first head that is read, and the one that is written
  std::uint32_t destination_head = 0;
  std::uint32_t heads = 0;  // 0: all of the source, from source_head on
  // If source and destination are shards of a larger model: the numbers of source_head and first_layer in the whole model, and
  // how many heads and layers the whole has. Rows are numbered by these. 0 heads or layers: the source has all of them.
  std::uint32_t whole_head = 0;
  std::uint32_t whole_heads = 0;
  std::uint32_t whole_layer = 0;
  std::uint32_t whole_layers = 0;
};

class CopyPlan;
using CopyPlanPtr = std::shared_ptr<const CopyPlan>;

// One block of a transfer.
struct BlockPair {
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  friend bool operator==(const BlockPair&, const BlockPair&) = default;
};

// A contiguous copy. It may span several blocks that are adjacent on both sides.
struct Copy {
  std::uint32_t source_region = 0;
  std::uint32_t destination_region = 0;
  std::uint64_t source_offset = 0;
  std::uint64_t destination_offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t first_pair = 0;  // of the pairs whose bytes it copies
  std::uint32_t pairs = 1;
  friend bool operator==(const Copy&, const Copy&) = default;
};

class CopyPlan {
 public:
  struct Level {
    std::uint32_t count = 1;
    std::uint64_t source_step = 0;       // bytes
    std::uint64_t destination_step = 0;  // bytes
    std::uint64_t row_step = 0;          // in the numbering of rows
  };
  // Rows at offset + block * block_step + the sum over levels of index * step. Levels are ordered from the inside out, by the
  // steps of the destination; unused ones have a count of 1 and come last. The first `run_levels` are contiguous on both sides.
  // Boxes are ordered by region and offset of the destination.
  struct Box {
    std::uint32_t source_region = 0;
    std::uint32_t destination_region = 0;
    std::uint64_t source_offset = 0;
    std::uint64_t destination_offset = 0;
    std::uint64_t source_block_step = 0;
    std::uint64_t destination_block_step = 0;
    std::uint64_t first_row = 0;
    std::array<Level, 4> levels = {};
    std::uint32_t run_levels = 0;
    std::uint64_t run_bytes = 0;  // row bytes x the counts of the run's levels
    std::uint64_t runs = 1;       // runs of a block: the counts of the other levels
  };

  [[nodiscard]] static Result<CopyPlanPtr> make(BlockLayoutPtr source, BlockLayoutPtr destination,
                                                const BlockPart& part = {});

  [[nodiscard]] const BlockLayout& source() const { return *source_; }
  [[nodiscard]] const BlockLayout& destination() const { return *destination_; }
  // As it was given to make().
  [[nodiscard]] const BlockPart& part() const { return part_; }
  [[nodiscard]] std::span<const Box> boxes() const { return boxes_; }
  [[nodiscard]] std::uint64_t row_bytes() const { return row_bytes_; }
  // The bytes that the plan moves of each block, and those of a whole block, which its checksum depends on.
  [[nodiscard]] std::uint64_t bytes_per_block() const { return bytes_per_block_; }
  [[nodiscard]] std::uint64_t whole_block_bytes() const { return whole_block_bytes_; }
  // Whether all rows of a block are moved, so that the sums are those of the block.
  [[nodiscard]] bool is_whole() const { return bytes_per_block_ == whole_block_bytes_; }
  [[nodiscard]] std::uint64_t runs_per_block() const { return runs_per_block_; }

  // Whether all blocks exist and no destination is written twice, or also read if both layouts are the same.
  [[nodiscard]] Status check(std::span<const BlockPair> pairs) const;
  // Replaces `out` with the fewest contiguous copies, none above `max_bytes`, in the order of their first pairs. Copies that are
  // adjacent on both sides are merged, within a block and across blocks.
  // Requires: pairs that pass check(), max_bytes above 0.
  void expand(std::span<const BlockPair> pairs, std::uint64_t max_bytes, std::vector<Copy>& out) const;

 private:
  // Boxes whose rows interleave in the destination, and how to visit their runs in the order of addresses, which finds
  // everything that is adjacent.
  enum class Order : std::uint8_t {
    kByPair,     // pair by pair: no block is adjacent to another one on both sides
    kByStretch,  // all adjacent pairs at once: the block is one more level of a box
    kSorted,     // by sorting: the steps do not nest
  };
  struct Neighbours {
    std::uint32_t first_box = 0;
    std::uint32_t boxes = 0;
    Order order = Order::kByPair;
  };
  class Expansion;

  CopyPlan() = default;
  void make_boxes(const BlockPart& part, const KvShape& whole);
  void group_boxes();
  [[nodiscard]] bool may_touch(const Box& box, const Box& next, std::uint64_t blocks) const;
  [[nodiscard]] Order order_of(std::span<const Box> boxes) const;

  BlockLayoutPtr source_;
  BlockLayoutPtr destination_;
  BlockPart part_;
  std::vector<Box> boxes_;
  std::vector<Neighbours> neighbours_;
  bool same_places_ = false;
  std::uint64_t row_bytes_ = 0;
  std::uint64_t bytes_per_block_ = 0;
  std::uint64_t whole_block_bytes_ = 0;
  std::uint64_t runs_per_block_ = 0;
};

}  // namespace cairn
