// The inner loops of copies and checksums (checksum.h): rows at regular steps that are copied, summed, or both at once. One call
// handles a whole level of rows, so that sums stay in registers from row to row. There are several versions; the fastest that the
// processor supports is chosen when the program starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/transfer/checksum.h"

namespace cairn {

// `rows` pieces of contiguous words. A piece is one row of a block, or several rows that are adjacent in memory and in number.
// Each piece is padded with zeros to words of 8 bytes.
struct RowRun {
  std::byte* to = nullptr;  // null: summed and not copied
  const std::byte* from = nullptr;
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t to_step = 0;  // from row to row, in bytes
  std::uint64_t from_step = 0;
  std::uint64_t first_word = 0;  // position of the first row's first word
  std::uint64_t word_step = 0;   // from row to row, in words
};

// How the destination is written. kStreaming writes past the caches: the bytes are not fetched before they are overwritten, which
// saves a third of the memory traffic, and are not in the caches afterwards. It is a hint: short rows that are not whole cache
// lines, and rows that are not aligned to words, are stored as usual.
enum class Stores : std::uint8_t { kCached, kStreaming };

struct RowKernel {
  std::string_view name;  // "avx512", "avx2", "portable"
  BlockSums (*sum)(const RowRun&) = nullptr;
  BlockSums (*copy_and_sum)(const RowRun&, Stores) = nullptr;
  void (*copy)(const RowRun&, Stores) = nullptr;
};

// The kernels that this processor supports, the fastest first; the portable one is the last.
[[nodiscard]] std::span<const RowKernel> row_kernels();
[[nodiscard]] const RowKernel& best_row_kernel();

namespace internal {

// Rows of whole cache lines, or rows so long that the stores at both ends do not matter.
[[nodiscard]] inline bool can_stream(const RowRun& run) {
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kLongRow = 1024;
  const std::uint64_t places = reinterpret_cast<std::uintptr_t>(run.to) | (run.rows > 1 ? run.to_step : 0);
  return (places | run.row_bytes) % kLine == 0 || (places % 8 == 0 && run.row_bytes >= kLongRow);
}

// first(p) in the low and second(p) in the high half; both are added to the halves of a word separately.
[[nodiscard]] constexpr std::uint64_t summands(std::uint64_t position) {
  const auto p = static_cast<std::uint32_t>(position);
  return (std::uint64_t{p * kSecondStep + kSecondStart} << 32) | (p * kFirstStep + kFirstStart);
}

// Adds the kernels for x86; returns how many.
std::size_t add_x86_kernels(std::span<RowKernel> kernels);

}  // namespace internal

}  // namespace cairn
