#include "cairn/transfer/row_sums.h"

#include "cairn/base/check.h"
#include "cairn/transfer/block_walk.h"

namespace cairn {

namespace {

// Of a stretch of the box's line. `first_row` is where the box's first row is, or would be.
BlockSums sum_stretch(const BoxWalk& walk, PlanSide side, const std::byte* first_row, std::uint64_t begin,
                      std::uint64_t end) {
  const RowKernel& kernel = best_row_kernel();
  const bool source = side == PlanSide::kSource;
  BlockSums sums;
  walk.visit(begin, end, [&](const BoxWalk::Rows& rows) {
    sums += kernel.sum({.from = first_row + (source ? rows.source_offset : rows.destination_offset),
                        .rows = rows.rows,
                        .row_bytes = rows.row_bytes,
                        .from_step = source ? rows.source_step : rows.destination_step,
                        .first_word = rows.first_word,
                        .word_step = rows.word_step});
  });
  return sums;
}

}  // namespace

BlockSums sum_box(const CopyPlan& plan, const CopyPlan::Box& box, PlanSide side, const std::byte* first_row) {
  const BoxWalk walk(plan, box);
  return sum_stretch(walk, side, first_row, 0, walk.bytes());
}

BlockSums sum_run(const CopyPlan& plan, const CopyPlan::Box& box, std::uint64_t run, const std::byte* run_bytes) {
  CAIRN_DCHECK(run < box.runs, "runs are numbered below the box's count");
  // A box of this run alone.
  CopyPlan::Box alone = box;
  for (std::size_t i = box.run_levels; i < box.levels.size(); ++i) {
    alone.first_row += run % box.levels[i].count * box.levels[i].row_step;
    run /= box.levels[i].count;
    alone.levels[i] = {};
  }
  return sum_box(plan, alone, PlanSide::kSource, run_bytes);
}

BlockSums sum_block(const CopyPlan& plan, PlanSide side, std::uint32_t block) {
  const bool source = side == PlanSide::kSource;
  const BlockLayout& layout = source ? plan.source() : plan.destination();
  CAIRN_CHECK(layout.regions().front()->is_host(), "sums are made of what the host may read");
  BlockSums sums;
  for (const CopyPlan::Box& box : plan.boxes()) {
    const std::byte* base = layout.regions()[source ? box.source_region : box.destination_region]->base();
    sums += sum_box(plan, box, side,
                    base + (source ? box.source_offset + block * box.source_block_step
                                   : box.destination_offset + block * box.destination_block_step));
  }
  return sums;
}

}  // namespace cairn
