#include "cairn/transfer/block_sums.h"

#include <array>
#include <cstddef>

#include "cairn/transfer/row_kernels.h"

namespace cairn {

BlockSums block_sums(const CopyPlan& plan, const BlockPair& pair, PlanSide side) {
  const bool at_source = side == PlanSide::kSource;
  const BlockLayout& layout = at_source ? plan.source() : plan.destination();
  const std::uint64_t block = at_source ? pair.source : pair.destination;
  const std::uint64_t row_words = (plan.row_bytes() + 7) / 8;
  const RowKernel& kernel = best_row_kernel();
  BlockSums sums;
  for (const CopyPlan::Box& box : plan.boxes()) {
    // A run whose rows follow each other in number, and fill their words, is one long row.
    const bool long_rows = box.rows_in_sequence && plan.row_bytes() % 8 == 0;
    const std::size_t inner = long_rows ? box.run_levels : 0;
    const auto step = [&](std::size_t level) {
      return at_source ? box.levels[level].source_step : box.levels[level].destination_step;
    };
    std::array<std::uint32_t, std::tuple_size_v<decltype(box.levels)>> index{};
    RowRun run;
    run.row_bytes = long_rows ? box.run_bytes : plan.row_bytes();
    if (inner < index.size()) {
      run.rows = box.levels[inner].count;
      run.from_step = step(inner);
      run.word_step = box.levels[inner].row_step * row_words;
    }
    const std::byte* const base = layout.regions()[at_source ? box.source_region : box.destination_region]->base() +
                                  (at_source ? box.source_offset : box.destination_offset) +
                                  block * (at_source ? box.source_block_step : box.destination_block_step);
    std::size_t level = 0;
    do {
      std::uint64_t offset = 0;
      std::uint64_t row = box.first_row;
      for (std::size_t i = inner + 1; i < index.size(); ++i) {
        offset += index[i] * step(i);
        row += index[i] * box.levels[i].row_step;
      }
      run.from = base + offset;
      run.first_word = row * row_words;
      sums += kernel.sum(run);
      level = inner + 1;
      while (level < index.size() && ++index[level] == box.levels[level].count) {
        index[level++] = 0;
      }
    } while (level < index.size());
  }
  return sums;
}

}  // namespace cairn
