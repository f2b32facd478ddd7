// For tests of plans: the expected copies row by row, and the effect of a plan's copies in memory.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>
#include <vector>

#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn::testing {

// One row of one pair, as two places and a number.
struct RowCopy {
  std::uint32_t pair = 0;
  BlockLayout::Address from;
  BlockLayout::Address to;
  std::uint64_t row = 0;
};

// Every row that a plan of this part moves, by nested loops over addresses. `part` as given to CopyPlan::make().
inline std::vector<RowCopy> rows_of(const BlockLayout& source, const BlockLayout& destination, const BlockPart& part,
                                    std::span<const BlockPair> pairs) {
  const KvShape& shape = source.shape();
  const std::uint32_t layers = part.layers == 0 ? shape.layers - part.first_layer : part.layers;
  const std::uint32_t heads = part.heads == 0 ? shape.heads - part.source_head : part.heads;
  KvShape whole = shape;
  whole.heads = part.whole_heads == 0 ? shape.heads : part.whole_heads;
  whole.layers = part.whole_layers == 0 ? shape.layers : part.whole_layers;
  const std::uint32_t whole_head = part.whole_heads == 0 ? part.source_head : part.whole_head;
  const std::uint32_t whole_layer = part.whole_layers == 0 ? part.first_layer : part.whole_layer;
  std::vector<RowCopy> rows;
  for (std::uint32_t pair = 0; pair < pairs.size(); ++pair) {
    for (std::uint32_t layer = part.first_layer; layer < part.first_layer + layers; ++layer) {
      for (std::uint32_t kv = 0; kv < shape.kv; ++kv) {
        for (std::uint32_t token = 0; token < shape.page_size; ++token) {
          for (std::uint32_t head = 0; head < heads; ++head) {
            rows.push_back(
                {pair, source.address(pairs[pair].source, layer, kv, token, part.source_head + head),
                 destination.address(pairs[pair].destination, layer, kv, token, part.destination_head + head),
                 whole.row(whole_layer + layer - part.first_layer, kv, token, whole_head + head)});
          }
        }
      }
    }
  }
  return rows;
}

// The copies of these rows, each row cut off where the last copy is full and joined to it where it is adjacent on both
// sides, by sorting; within stretches of pairs that follow each other.
inline std::vector<Copy> merge_rows(std::vector<RowCopy> rows, std::span<const BlockPair> pairs,
                                    std::uint64_t row_bytes, std::uint64_t max_bytes) {
  std::vector<std::uint32_t> stretch_of(pairs.size(), 0);
  for (std::size_t i = 1; i < pairs.size(); ++i) {
    const bool follows =
        pairs[i].source == pairs[i - 1].source + 1 && pairs[i].destination == pairs[i - 1].destination + 1;
    stretch_of[i] = stretch_of[i - 1] + (follows ? 0 : 1);
  }
  std::sort(rows.begin(), rows.end(), [&](const RowCopy& a, const RowCopy& b) {
    return std::tuple(stretch_of[a.pair], a.to.region, a.to.offset) <
           std::tuple(stretch_of[b.pair], b.to.region, b.to.offset);
  });
  std::vector<Copy> copies;
  for (const RowCopy& row : rows) {
    for (std::uint64_t done = 0; done < row_bytes;) {
      const Copy next{row.from.region, row.to.region, row.from.offset + done, row.to.offset + done, 0, row.pair, 1};
      const bool joins = !copies.empty() && stretch_of[copies.back().first_pair] == stretch_of[row.pair] &&
                         copies.back().source_region == next.source_region &&
                         copies.back().destination_region == next.destination_region &&
                         copies.back().source_offset + copies.back().bytes == next.source_offset &&
                         copies.back().destination_offset + copies.back().bytes == next.destination_offset &&
                         copies.back().bytes < max_bytes && row.pair >= copies.back().first_pair &&
                         row.pair <= copies.back().first_pair + copies.back().pairs;
      if (!joins) {
        copies.push_back(next);
      }
      Copy& last = copies.back();
      const std::uint64_t bytes = std::min(row_bytes - done, max_bytes - last.bytes);
      last.bytes += bytes;
      last.pairs = std::max(last.pairs, row.pair - last.first_pair + 1);
      done += bytes;
    }
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [](const Copy& a, const Copy& b) { return a.first_pair < b.first_pair; });
  return copies;
}

// Does the copies in the memory of two test layouts.
inline void apply(std::span<const Copy> copies, const TestLayout& source, const TestLayout& destination) {
  for (const Copy& copy : copies) {
    const auto from = source.regions()[copy.source_region].bytes().subspan(copy.source_offset, copy.bytes);
    const auto to = destination.regions()[copy.destination_region].bytes().subspan(copy.destination_offset, copy.bytes);
    std::memcpy(to.data(), from.data(), copy.bytes);
  }
}

// The rows of a plan's boxes, for a pair of blocks.
inline std::vector<RowCopy> rows_of_boxes(const CopyPlan& plan, const BlockPair& pair) {
  std::vector<RowCopy> rows;
  for (const CopyPlan::Box& box : plan.boxes()) {
    const auto& levels = box.levels;
    for (std::uint32_t d = 0; d < levels[3].count; ++d) {
      for (std::uint32_t c = 0; c < levels[2].count; ++c) {
        for (std::uint32_t b = 0; b < levels[1].count; ++b) {
          for (std::uint32_t a = 0; a < levels[0].count; ++a) {
            RowCopy row{
                0,
                {box.source_region, box.source_offset + pair.source * box.source_block_step},
                {box.destination_region, box.destination_offset + pair.destination * box.destination_block_step},
                box.first_row};
            const std::uint32_t index[] = {a, b, c, d};
            for (std::size_t i = 0; i < 4; ++i) {
              row.from.offset += index[i] * levels[i].source_step;
              row.to.offset += index[i] * levels[i].destination_step;
              row.row += index[i] * levels[i].row_step;
            }
            rows.push_back(row);
          }
        }
      }
    }
  }
  return rows;
}

}  // namespace cairn::testing
