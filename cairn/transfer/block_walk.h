// BlockWalk: the bytes that a plan moves of a block, as one sequence that can be cut, and the rows that a section of it is on
// both sides. Used by the CPU to copy and to sum. The bytes are ordered box by box, in a box from the inner levels out. What is
// contiguous on both sides and in the numbering of words is one piece, however many rows it has.
//
// Thread safety: immutable.
// Ownership: the plan outlives the walk.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/row_kernels.h"

namespace cairn {

// One box of a plan.
class BoxWalk {
 public:
  BoxWalk(const CopyPlan& plan, const CopyPlan::Box& box);

  // Pieces at regular steps; offsets are from the box's first row of a block, on either side.
  struct Rows {
    std::uint64_t source_offset = 0;
    std::uint64_t destination_offset = 0;
    std::uint64_t rows = 1;
    std::uint64_t row_bytes = 0;
    std::uint64_t source_step = 0;
    std::uint64_t destination_step = 0;
    std::uint64_t first_word = 0;
    std::uint64_t word_step = 0;
  };

  [[nodiscard]] std::uint64_t bytes() const { return pieces_ * piece_bytes_; }
  // The last position at or before `at` where the sequence may be cut: between pieces, or inside a long one.
  [[nodiscard]] std::uint64_t cut(std::uint64_t at) const {
    return at / piece_bytes_ * piece_bytes_ + at % piece_bytes_ / kCutStep * kCutStep;
  }
  // Calls visit(const Rows&) for the bytes from `begin` to `end`. Requires: both are cuts.
  template <typename Visit>
  void visit(std::uint64_t begin, std::uint64_t end, Visit visit) const;

 private:
  static constexpr std::uint64_t kCutStep = 4096;  // a page, and whole words
  struct Level {
    std::uint64_t count = 1;
    std::uint64_t source_step = 0;
    std::uint64_t destination_step = 0;
    std::uint64_t word_step = 0;
  };

  // The rows of this piece alone.
  [[nodiscard]] Rows rows_at(std::uint64_t piece) const;

  std::uint64_t piece_bytes_ = 0;
  std::uint64_t pieces_ = 1;
  std::uint64_t first_word_ = 0;
  std::array<Level, 4> levels_ = {};  // of pieces, from the inside out
};

class BlockWalk {
 public:
  explicit BlockWalk(const CopyPlan& plan);

  [[nodiscard]] std::uint64_t bytes() const { return starts_.back(); }
  [[nodiscard]] std::uint64_t cut(std::uint64_t at) const;
  // Copies the bytes between two cuts, in host memory.
  [[nodiscard]] BlockSums copy_and_sum(const BlockPair& pair, std::uint64_t begin, std::uint64_t end,
                                       Stores stores) const;
  void copy(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Stores stores) const;

 private:
  template <typename Work>
  void visit(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Work work) const;

  const CopyPlan* plan_;
  std::vector<BoxWalk> boxes_;
  std::vector<std::uint64_t> starts_;  // of each box in the sequence, and the end
};

template <typename Visit>
void BoxWalk::visit(std::uint64_t begin, std::uint64_t end, Visit visit) const {
  while (begin < end) {
    Rows rows = rows_at(begin / piece_bytes_);
    const std::uint64_t inside = begin % piece_bytes_;
    const std::uint64_t whole = (end - begin) / piece_bytes_;
    if (inside > 0 || whole == 0) {
      rows.source_offset += inside;
      rows.destination_offset += inside;
      rows.first_word += inside / 8;
      rows.row_bytes = std::min(piece_bytes_ - inside, end - begin);
    } else {
      rows.rows = std::min(whole, levels_[0].count - begin / piece_bytes_ % levels_[0].count);
    }
    visit(rows);
    begin += rows.rows * rows.row_bytes;
  }
}

}  // namespace cairn
