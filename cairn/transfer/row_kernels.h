// The inner loops of copies and checksums: rows at regular steps, copied, added up (checksum.h), or both at once.
//
// Does:     one call for a whole level of rows: sums stay in registers from row to row. Several versions of one
//           definition, and the fastest that the processor has is chosen when the program starts.
// Threads:  pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/transfer/checksum.h"

namespace cairn {

// `rows` pieces of contiguous words. A piece may be one row of a block or many that follow each other in memory and in
// number; each is padded with zeros to words of 8 bytes by itself.
struct RowRun {
  std::byte* to = nullptr;  // none: added up and not copied
  const std::byte* from = nullptr;
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t to_step = 0;  // from row to row, in bytes
  std::uint64_t from_step = 0;
  std::uint64_t first_word = 0;  // position of the first row's first word
  std::uint64_t word_step = 0;   // from row to row, in words
};

// How the destination is written. Past the caches: the bytes are not fetched before they are overwritten, which saves a
// third of the memory traffic, and not there to be read at once. Taken as a wish: short rows that are not whole lines,
// and rows that are not aligned to words, are stored as usual.
enum class Stores : std::uint8_t { kCached, kStreaming };

struct RowKernel {
  std::string_view name;  // "avx512", "avx2", "portable"
  BlockSums (*sum)(const RowRun&) = nullptr;
  BlockSums (*copy_and_sum)(const RowRun&, Stores) = nullptr;
  void (*copy)(const RowRun&, Stores) = nullptr;
};

// Those that this processor runs, the fastest first; the portable one is the last.
[[nodiscard]] std::span<const RowKernel> row_kernels();
[[nodiscard]] const RowKernel& best_row_kernel();

namespace internal {

// Rows of whole lines, or rows long enough that what is stored as usual at both ends does not count.
[[nodiscard]] inline bool can_stream(const RowRun& run) {
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kLongRow = 1024;
  const std::uint64_t places = reinterpret_cast<std::uintptr_t>(run.to) | (run.rows > 1 ? run.to_step : 0);
  return (places | run.row_bytes) % kLine == 0 || (places % 8 == 0 && run.row_bytes >= kLongRow);
}

// Positions' summands, first in the low and second in the high half: adding 32-bit halves apart is what the definition
// asks for.
[[nodiscard]] constexpr std::uint64_t summands(std::uint64_t position) {
  const auto p = static_cast<std::uint32_t>(position);
  return (std::uint64_t{p * kSecondStep + kSecondStart} << 32) | (p * kFirstStep + kFirstStart);
}

// The processor's kernels, appended by the file that is compiled for it; how many.
std::size_t add_x86_kernels(std::span<RowKernel> kernels);

}  // namespace internal

}  // namespace cairn
