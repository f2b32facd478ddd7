// How the GPU copies a block, one unit of a row at a time: where each unit is read and written, and which words of the checksum
// it holds. Shared by the kernel (block_copy.cu) and its tests on the CPU. The units of a block are numbered in the order in which
// the destination has them, so that adjacent threads read and write adjacent memory, whatever the two layouts are.
#pragma once

#include <cstdint>

#include "cairn/transfer/checksum.h"

#ifdef __CUDACC__
#define CAIRN_ON_GPU __host__ __device__
#else
#define CAIRN_ON_GPU
#endif

namespace cairn::gpu {

// Division by a constant, as a multiplication. For dividends below 2^31.
struct Divisor {
  std::uint32_t value = 1;
  std::uint32_t magic = 1;
  std::uint32_t shift = 0;

  static constexpr Divisor by(std::uint32_t value) {
    std::uint32_t shift = 0;
    while ((std::uint64_t{1} << shift) < value) {
      ++shift;
    }
    const std::uint64_t magic = ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value)) / value + 1;
    return {value, static_cast<std::uint32_t>(magic), shift};
  }
  // n / value; n becomes the remainder.
  CAIRN_ON_GPU constexpr std::uint32_t split(std::uint32_t& n) const {
    const std::uint64_t high = (std::uint64_t{n} * magic) >> 32;
    const auto quotient = static_cast<std::uint32_t>((high + n) >> shift);
    n -= quotient * value;
    return quotient;
  }
};

inline constexpr int kLevels = 4;

// Rows at regular steps on both sides; of CopyPlan::Box.
struct Box {
  std::uint64_t source = 0;  // of the first row of block 0: an address, or an offset from Launch::source_base
  std::uint64_t destination = 0;
  std::uint64_t source_block_step = 0;
  std::uint64_t destination_block_step = 0;
  std::uint64_t first_row = 0;
  std::uint64_t source_step[kLevels] = {};
  std::uint64_t destination_step[kLevels] = {};
  std::uint64_t row_step[kLevels] = {};
};

// What all boxes of a plan have in common.
struct Shape {
  std::uint32_t units = 0;       // a block
  std::uint32_t unit_bytes = 0;  // 16 or 8; or 1: rows of any length, moved by the byte
  std::uint32_t row_bytes = 0;
  std::uint32_t words_per_row = 0;
  Divisor units_per_box;
  Divisor units_per_row;
  Divisor counts[kLevels - 1];  // of all levels but the outermost
};

// The blocks of a launch travel in its arguments, which are limited.
inline constexpr std::uint32_t kMaxBlocks = 400;
struct Pair {
  std::uint32_t source;
  std::uint32_t destination;
};

struct Launch {
  Shape shape;
  const Box* boxes = nullptr;     // on the GPU
  std::uint64_t source_base = 0;  // added to the addresses of the boxes
  std::uint64_t destination_base = 0;
  BlockSums* sums = nullptr;          // on the GPU, zero before and after; null: no checksum
  BlockSums* sums_out = nullptr;      // on the host; written when all are complete
  std::uint32_t* arrivals = nullptr;  // on the GPU, zero before and after
  std::uint32_t blocks = 0;
  Pair pairs[kMaxBlocks];
};
static_assert(sizeof(Launch) <= 4096 - 64, "the arguments of a kernel end at 4 KiB");

// Where one unit of one block is.
struct Unit {
  std::uint64_t source;
  std::uint64_t destination;
  std::uint64_t word;   // the position of its first word
  std::uint32_t bytes;  // the last unit of a row may have fewer
};

CAIRN_ON_GPU inline Unit locate(const Launch& launch, const Box* boxes, const Pair& pair, std::uint32_t unit) {
  const Shape& shape = launch.shape;
  const Box& box = boxes[shape.units_per_box.split(unit)];
  std::uint32_t row = shape.units_per_row.split(unit);  // `unit` is now the one within its row
  std::uint64_t source = launch.source_base + box.source + pair.source * box.source_block_step;
  std::uint64_t destination = launch.destination_base + box.destination + pair.destination * box.destination_block_step;
  std::uint64_t number = box.first_row;
  for (int level = 0; level < kLevels; ++level) {
    std::uint32_t index = row;
    row = level + 1 < kLevels ? shape.counts[level].split(index) : 0;
    source += index * box.source_step[level];
    destination += index * box.destination_step[level];
    number += index * box.row_step[level];
  }
  const std::uint32_t stride = shape.unit_bytes == 1 ? 8 : shape.unit_bytes;
  const std::uint32_t offset = unit * stride;
  const std::uint32_t rest = shape.row_bytes - offset;
  return {source + offset, destination + offset, number * shape.words_per_row + offset / 8,
          rest < stride ? rest : stride};
}

CAIRN_ON_GPU inline void add_word(BlockSums& sums, std::uint64_t word, std::uint64_t position) {
  const auto p = static_cast<std::uint32_t>(position);
  const std::uint32_t low = static_cast<std::uint32_t>(word) + (p * kFirstStep + kFirstStart);
  const std::uint32_t high = static_cast<std::uint32_t>(word >> 32) + (p * kSecondStep + kSecondStart);
  sums.products += std::uint64_t{low} * high;
  sums.words += word;
}

}  // namespace cairn::gpu
