#include "cairn/transfer/row_kernels.h"

#include <array>
#include <bit>
#include <cstring>

namespace cairn {

static_assert(std::endian::native == std::endian::little, "words are read as little-endian ones");

namespace {

void add_word(BlockSums& sums, std::uint64_t word, std::uint64_t position) {
  const std::uint64_t key = internal::summands(position);
  const std::uint32_t low = static_cast<std::uint32_t>(word) + static_cast<std::uint32_t>(key);
  const std::uint32_t high = static_cast<std::uint32_t>(word >> 32) + static_cast<std::uint32_t>(key >> 32);
  sums.products += std::uint64_t{low} * high;
  sums.words += word;
}

template <bool kCopy>
BlockSums add_rows(const RowRun& run) {
  BlockSums sums;
  for (std::uint64_t row = 0; row < run.rows; ++row) {
    const std::byte* from = run.from + row * run.from_step;
    std::byte* to = kCopy ? run.to + row * run.to_step : nullptr;
    std::uint64_t position = run.first_word + row * run.word_step;
    std::uint64_t at = 0;
    for (; at + 8 <= run.row_bytes; at += 8, ++position) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + at, 8);
      if constexpr (kCopy) {
        std::memcpy(to + at, &word, 8);
      }
      add_word(sums, word, position);
    }
    if (const std::uint64_t left = run.row_bytes - at; left > 0) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + at, left);
      if constexpr (kCopy) {
        std::memcpy(to + at, &word, left);
      }
      add_word(sums, word, position);
    }
  }
  return sums;
}

void copy_rows(const RowRun& run, Stores /*stores*/) {
  for (std::uint64_t row = 0; row < run.rows; ++row) {
    std::memcpy(run.to + row * run.to_step, run.from + row * run.from_step, run.row_bytes);
  }
}

struct Kernels {
  std::array<RowKernel, 3> all = {};
  std::size_t count = 0;
};

Kernels find_kernels() {
  Kernels kernels;
#if defined(__x86_64__)
  kernels.count = internal::add_x86_kernels(kernels.all);
#endif
  kernels.all[kernels.count++] = {
      .name = "portable",
      .sum = add_rows<false>,
      .copy_and_sum = [](const RowRun& run, Stores /*stores*/) { return add_rows<true>(run); },
      .copy = copy_rows};
  return kernels;
}

}  // namespace

std::span<const RowKernel> row_kernels() {
  static const Kernels kernels = find_kernels();
  return {kernels.all.data(), kernels.count};
}

const RowKernel& best_row_kernel() {
  static const RowKernel best = row_kernels().front();
  return best;
}

}  // namespace cairn
