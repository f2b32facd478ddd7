#include "cairn/transfer/gpu_plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "cairn/base/str_cat.h"

namespace cairn::gpu {

namespace {

constexpr std::uint64_t kMostUnits = std::uint64_t{1} << 31;

using Counts = std::array<std::uint32_t, kLevels>;

struct CountedBox {
  Box box;
  Counts counts = {};
};

std::uint64_t address_of(const BlockLayout& layout, std::uint32_t region) {
  return reinterpret_cast<std::uint64_t>(layout.regions()[region]->base());
}

CountedBox to_counted(const CopyPlan& plan, const CopyPlan::Box& from) {
  CountedBox to;
  to.box.source = address_of(plan.source(), from.source_region) + from.source_offset;
  to.box.destination = address_of(plan.destination(), from.destination_region) + from.destination_offset;
  to.box.source_block_step = from.source_block_step;
  to.box.destination_block_step = from.destination_block_step;
  to.box.first_row = from.first_row;
  for (std::size_t level = 0; level < kLevels; ++level) {
    to.counts[level] = from.levels[level].count;
    to.box.source_step[level] = from.levels[level].source_step;
    to.box.destination_step[level] = from.levels[level].destination_step;
    to.box.row_step[level] = from.levels[level].row_step;
  }
  return to;
}

// One box for each step of its outermost level that has more than one.
void split_outermost(const CountedBox& from, std::vector<CountedBox>& out) {
  std::size_t level = kLevels - 1;
  while (level > 0 && from.counts[level] == 1) {
    --level;
  }
  CountedBox part = from;
  part.counts[level] = 1;
  for (std::uint32_t i = 0; i < from.counts[level]; ++i) {
    out.push_back(part);
    part.box.source += from.box.source_step[level];
    part.box.destination += from.box.destination_step[level];
    part.box.first_row += from.box.row_step[level];
  }
}

// The kernel finds a unit's box by one division: all must be of one size.
void make_uniform(std::vector<CountedBox>& boxes) {
  const auto differ = [&boxes] {
    return std::any_of(boxes.begin(), boxes.end(), [&](const CountedBox& b) { return b.counts != boxes[0].counts; });
  };
  while (differ()) {
    std::vector<CountedBox> smaller;
    for (const CountedBox& box : boxes) {
      split_outermost(box, smaller);
    }
    boxes = std::move(smaller);
  }
}

// The widest unit that every row, step and address is a multiple of.
std::uint32_t unit_of(const std::vector<CountedBox>& boxes, std::uint64_t row_bytes) {
  std::uint64_t bits = row_bytes;
  for (const CountedBox& counted : boxes) {
    const Box& box = counted.box;
    bits |= box.source | box.destination | box.source_block_step | box.destination_block_step;
    for (std::size_t level = 0; level < kLevels; ++level) {
      if (counted.counts[level] > 1) {
        bits |= box.source_step[level] | box.destination_step[level];
      }
    }
  }
  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : 1;
}

BoxTable to_table(const std::vector<CountedBox>& boxes, std::uint64_t row_bytes) {
  BoxTable table;
  const Counts& counts = boxes[0].counts;
  const std::uint32_t unit = unit_of(boxes, row_bytes);
  const auto units_per_row = static_cast<std::uint32_t>(unit == 1 ? (row_bytes + 7) / 8 : row_bytes / unit);
  const std::uint32_t units_per_box = counts[0] * counts[1] * counts[2] * counts[3] * units_per_row;
  table.shape.units = static_cast<std::uint32_t>(boxes.size()) * units_per_box;
  table.shape.unit_bytes = unit;
  table.shape.row_bytes = static_cast<std::uint32_t>(row_bytes);
  table.shape.words_per_row = static_cast<std::uint32_t>((row_bytes + 7) / 8);
  table.shape.units_per_box = Divisor::by(units_per_box);
  table.shape.units_per_row = Divisor::by(units_per_row);
  for (std::size_t level = 0; level + 1 < kLevels; ++level) {
    table.shape.counts[level] = Divisor::by(counts[level]);
  }
  for (const CountedBox& box : boxes) {
    table.boxes.push_back(box.box);
  }
  return table;
}

struct Extent {
  std::uint64_t address = 0;
  std::uint64_t block_step = 0;
};

// Where the host has each block as one dense piece.
std::optional<Extent> dense_extent(const CopyPlan& plan, Direction direction) {
  const bool to_host = direction == Direction::kFromDevice;
  const BlockLayout& host = to_host ? plan.destination() : plan.source();
  std::optional<Extent> found;
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (const CopyPlan::Box& box : plan.boxes()) {
    const std::uint64_t address = address_of(host, to_host ? box.destination_region : box.source_region) +
                                  (to_host ? box.destination_offset : box.source_offset);
    const std::uint64_t step = to_host ? box.destination_block_step : box.source_block_step;
    std::uint64_t last = address + plan.row_bytes();
    for (const CopyPlan::Level& level : box.levels) {
      last += (level.count - 1) * (to_host ? level.destination_step : level.source_step);
    }
    begin = std::min(begin, address);
    end = std::max(end, last);
    if (found && found->block_step != step) {
      return std::nullopt;
    }
    found = Extent{0, step};
  }
  // Rows do not overlap: as many bytes as the block has, and there is no hole that a copy would overwrite.
  if (!found || end - begin != plan.bytes_per_block()) {
    return std::nullopt;
  }
  found->address = begin;
  return found;
}

}  // namespace

Result<GpuPlan> make_gpu_plan(const CopyPlan& plan, Direction direction) {
  if ((plan.bytes_per_block() / std::max<std::uint64_t>(plan.row_bytes(), 1)) * ((plan.row_bytes() + 7) / 8) >=
      kMostUnits) {
    return fail(ErrorCode::kOutOfRange,
                str_cat("a block of ", plan.bytes_per_block(), " bytes is more than the GPU's copies can number"));
  }
  std::vector<CountedBox> boxes;
  for (const CopyPlan::Box& box : plan.boxes()) {
    boxes.push_back(to_counted(plan, box));
  }
  make_uniform(boxes);
  GpuPlan made;
  made.direct = to_table(boxes, plan.row_bytes());
  made.block_bytes = plan.bytes_per_block();
  made.run_bytes = std::min_element(plan.boxes().begin(), plan.boxes().end(), [](const auto& a, const auto& b) {
                     return a.run_bytes < b.run_bytes;
                   })->run_bytes;
  const std::optional<Extent> extent = dense_extent(plan, direction);
  if (extent) {
    made.host_address = extent->address;
    made.host_block_step = extent->block_step;
    for (CountedBox& counted : boxes) {
      Box& box = counted.box;
      if (direction == Direction::kFromDevice) {
        box.destination -= extent->address;
        box.destination_block_step = made.block_bytes;
      } else {
        box.source -= extent->address;
        box.source_block_step = made.block_bytes;
      }
    }
    made.staged = to_table(boxes, plan.row_bytes());
  }
  return made;
}

}  // namespace cairn::gpu
