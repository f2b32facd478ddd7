#include "cairn/transfer/block_walk.h"

namespace cairn {

BoxWalk::BoxWalk(const CopyPlan& plan, const CopyPlan::Box& box) {
  const std::uint64_t row_bytes = plan.row_bytes();
  const std::uint64_t row_words = (row_bytes + 7) / 8;
  // A piece is as many rows as follow each other in memory and in number, without padding between them.
  std::size_t inside = 0;
  std::uint64_t rows = 1;
  while (row_bytes % 8 == 0 && inside < box.run_levels && box.levels[inside].row_step == rows) {
    rows *= box.levels[inside++].count;
  }
  piece_bytes_ = row_bytes * rows;
  first_word_ = box.first_row * row_words;
  std::size_t used = 0;
  for (std::size_t i = inside; i < box.levels.size(); ++i) {
    const CopyPlan::Level& level = box.levels[i];
    if (level.count > 1) {
      levels_[used++] = {level.count, level.source_step, level.destination_step, level.row_step * row_words};
      pieces_ *= level.count;
    }
  }
}

BoxWalk::Rows BoxWalk::rows_at(std::uint64_t piece) const {
  Rows rows{.row_bytes = piece_bytes_,
            .source_step = levels_[0].source_step,
            .destination_step = levels_[0].destination_step,
            .first_word = first_word_,
            .word_step = levels_[0].word_step};
  for (const Level& level : levels_) {
    const std::uint64_t index = piece % level.count;
    piece /= level.count;
    rows.source_offset += index * level.source_step;
    rows.destination_offset += index * level.destination_step;
    rows.first_word += index * level.word_step;
  }
  return rows;
}

BlockWalk::BlockWalk(const CopyPlan& plan) : plan_(&plan) {
  boxes_.reserve(plan.boxes().size());
  starts_.reserve(plan.boxes().size() + 1);
  starts_.push_back(0);
  for (const CopyPlan::Box& box : plan.boxes()) {
    boxes_.emplace_back(plan, box);
    starts_.push_back(starts_.back() + boxes_.back().bytes());
  }
}

std::uint64_t BlockWalk::cut(std::uint64_t at) const {
  if (at >= bytes()) {
    return bytes();
  }
  const auto box = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin()) - 1;
  return starts_[box] + boxes_[box].cut(at - starts_[box]);
}

template <typename Work>
void BlockWalk::visit(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Work work) const {
  auto index = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin()) - 1;
  for (; begin < end; begin = starts_[++index]) {
    const CopyPlan::Box& box = plan_->boxes()[index];
    const std::byte* from =
        plan_->source().regions()[box.source_region]->base() + box.source_offset + pair.source * box.source_block_step;
    std::byte* to = plan_->destination().regions()[box.destination_region]->base() + box.destination_offset +
                    pair.destination * box.destination_block_step;
    boxes_[index].visit(begin - starts_[index], std::min(end, starts_[index + 1]) - starts_[index],
                        [&](const BoxWalk::Rows& rows) {
                          work(RowRun{.to = to + rows.destination_offset,
                                      .from = from + rows.source_offset,
                                      .rows = rows.rows,
                                      .row_bytes = rows.row_bytes,
                                      .to_step = rows.destination_step,
                                      .from_step = rows.source_step,
                                      .first_word = rows.first_word,
                                      .word_step = rows.word_step});
                        });
  }
}

BlockSums BlockWalk::copy_and_sum(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Stores stores) const {
  const RowKernel& kernel = best_row_kernel();
  BlockSums sums;
  visit(pair, begin, end, [&](const RowRun& run) { sums += kernel.copy_and_sum(run, stores); });
  return sums;
}

void BlockWalk::copy(const BlockPair& pair, std::uint64_t begin, std::uint64_t end, Stores stores) const {
  const RowKernel& kernel = best_row_kernel();
  visit(pair, begin, end, [&](const RowRun& run) { kernel.copy(run, stores); });
}

}  // namespace cairn
