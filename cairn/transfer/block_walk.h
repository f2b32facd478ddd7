// BlockWalk: the bytes of a block that a plan moves, as one line that can be cut anywhere, and what a stretch of it is
// in rows on both sides. For those who copy or add up by themselves: the CPU.
//
// Does:     orders the bytes box by box, in a box from the inner levels out. What is contiguous on both sides and in the
//           numbering of words is one piece, however many rows it is.
// Owner:    the walk holds no plan: the plan outlives it.
// Threads:  immutable; any.
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
  // The last place at or before `at` where the line may be cut: between pieces, or inside a long one.
  [[nodiscard]] std::uint64_t cut(std::uint64_t at) const {
    return at / piece_bytes_ * piece_bytes_ + at % piece_bytes_ / kCutStep * kCutStep;
  }
  // Calls visit(const Rows&) for the stretch from `begin` to `end`, both of which are cuts.
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

  // The first of the pieces from `piece` on, alone.
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
  // Copies a stretch between two cuts, in host memory.
  [[nodiscard]] BlockSums copy_and_sum(const BlockPair& pair, std::uint64_t begin, std::uint64_t end,
                                       Stores stores) const;
  void copy(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Stores stores) const;

 private:
  template <typename Work>
  void visit(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Work work) const;

  const CopyPlan* plan_;
  std::vector<BoxWalk> boxes_;
  std::vector<std::uint64_t> starts_;  // of each box on the line, and the end
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
