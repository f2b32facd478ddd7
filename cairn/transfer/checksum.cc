#include "cairn/transfer/checksum.h"

#include "cairn/transfer/row_kernels.h"

namespace cairn {

namespace {

// Copies from this size on go past the caches: they would evict more from the caches than is read of them again.
constexpr std::size_t kLeastStreamedCopy = std::size_t{1} << 20;

// A bijection of 64 bits in which every bit of the input moves every bit of the output.
std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0xE9846AF9B1A615DULL;
  value ^= value >> 32;
  value *= 0xE9846AF9B1A615DULL;
  value ^= value >> 28;
  return value;
}

}  // namespace

BlockSums sum_words(std::span<const std::byte> bytes, std::uint64_t first_word) {
  return best_row_kernel().sum({.from = bytes.data(), .row_bytes = bytes.size(), .first_word = first_word});
}

BlockSums copy_and_sum(std::byte* to, std::span<const std::byte> from, std::uint64_t first_word) {
  return best_row_kernel().copy_and_sum(
      {.to = to, .from = from.data(), .row_bytes = from.size(), .first_word = first_word},
      from.size() >= kLeastStreamedCopy ? Stores::kStreaming : Stores::kCached);
}

// Each step is a bijection of what came before for a given part, so that two blocks that differ in one part only never
// get the same checksum.
Checksum finish(const BlockSums& sums, std::uint64_t block_bytes, const BlockTag& tag) {
  std::uint64_t state = 0x243F6A8885A308D3ULL;
  for (const std::uint64_t part : {sums.products, sums.words, block_bytes, tag.high, tag.low}) {
    state = mix(state + part) + 0x9E3779B97F4A7C15ULL;
  }
  return Checksum{state == static_cast<std::uint64_t>(kNoChecksum) ? 1 : state};
}

}  // namespace cairn
