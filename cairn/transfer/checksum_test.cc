#include "cairn/transfer/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "cairn/transfer/row_kernels.h"

namespace cairn {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& each : bytes) {
    each = static_cast<std::byte>(random());
  }
  return bytes;
}

// The definition of the header, as it is written there.
BlockSums naive_sums(std::span<const std::byte> bytes, std::uint64_t first_word) {
  BlockSums sums;
  for (std::uint64_t j = 0; j * 8 < bytes.size(); ++j) {
    std::uint64_t w = 0;
    for (std::uint64_t i = 0; i < 8 && j * 8 + i < bytes.size(); ++i) {
      w |= static_cast<std::uint64_t>(bytes[j * 8 + i]) << (8 * i);
    }
    const std::uint64_t p = first_word + j;
    const std::uint64_t mod = std::uint64_t{1} << 32;
    const std::uint64_t first = (p % mod * 0x9E3779B1ULL + 0x165667B1ULL) % mod;
    const std::uint64_t second = (p % mod * 0x85EBCA77ULL + 0x27D4EB2FULL) % mod;
    sums.products += ((w % mod + first) % mod) * ((w / mod + second) % mod);
    sums.words += w;
  }
  return sums;
}

TEST(ChecksumTest, IsWhatIsDefinedAtEverySizeAndAlignment) {
  const Bytes bytes = random_bytes(1400, 1);
  for (std::size_t size = 0; size <= 1300; size += size < 140 ? 1 : 37) {
    for (const std::size_t offset : {0U, 1U, 7U, 8U, 33U}) {
      const std::span<const std::byte> piece(bytes.data() + offset, size);
      ASSERT_EQ(sum_words(piece, offset), naive_sums(piece, offset)) << size << " bytes at " << offset;
    }
  }
}

TEST(ChecksumTest, PositionsWrapAtTwoToTheThirtySecond) {
  const Bytes bytes = random_bytes(512, 2);
  const std::uint64_t wrap = std::uint64_t{1} << 32;
  EXPECT_EQ(sum_words(bytes, wrap + 5), sum_words(bytes, 5));
  EXPECT_EQ(sum_words(bytes, wrap - 20), naive_sums(bytes, wrap - 20));
  EXPECT_NE(sum_words(bytes, wrap - 20), sum_words(bytes, 0));
}

TEST(ChecksumTest, SumsOfPiecesAddUpInAnyOrder) {
  const Bytes bytes = random_bytes(8 * 1000, 3);
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    BlockSums total;
    std::vector<std::pair<std::size_t, std::size_t>> pieces;
    for (std::size_t at = 0; at < 1000;) {
      const std::size_t words = std::min<std::size_t>(1 + random() % 300, 1000 - at);
      pieces.emplace_back(at, words);
      at += words;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const auto& [at, words] : pieces) {
      total += sum_words({bytes.data() + at * 8, words * 8}, at);
    }
    ASSERT_EQ(total, sum_words(bytes, 0));
  }
}

TEST(ChecksumTest, EveryFlippedBitIsCaught) {
  Bytes bytes = random_bytes(200, 5);
  const BlockTag tag{1, 2};
  const Checksum right = finish(sum_words(bytes, 0), bytes.size(), tag);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_NE(finish(sum_words(bytes, 0), bytes.size(), tag), right) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(ChecksumTest, WhatIsInAnotherPlaceIsCaught) {
  constexpr std::size_t kFragment = 64;
  const Bytes bytes = random_bytes(kFragment * 16, 6);
  const auto checksum = [](std::span<const std::byte> of) { return finish(sum_words(of, 0), of.size(), {}); };
  const Checksum right = checksum(bytes);
  for (std::size_t a = 0; a < 16; ++a) {
    for (std::size_t b = a + 1; b < 16; ++b) {
      Bytes swapped = bytes;
      std::swap_ranges(swapped.begin() + static_cast<std::ptrdiff_t>(a * kFragment),
                       swapped.begin() + static_cast<std::ptrdiff_t>((a + 1) * kFragment),
                       swapped.begin() + static_cast<std::ptrdiff_t>(b * kFragment));
      ASSERT_NE(checksum(swapped), right) << "fragments " << a << " and " << b;
    }
  }
  for (const std::size_t by : {1U, 8U, 64U, 512U}) {
    Bytes shifted = bytes;
    std::rotate(shifted.begin(), shifted.begin() + static_cast<std::ptrdiff_t>(by), shifted.end());
    EXPECT_NE(checksum(shifted), right) << "shifted by " << by;
  }
  Bytes zeroed = bytes;
  std::fill_n(zeroed.begin() + 128, kFragment, std::byte{0});
  EXPECT_NE(checksum(zeroed), right);
}

TEST(ChecksumTest, ShorterBlocksAndOtherTagsAreCaught) {
  Bytes bytes = random_bytes(1024, 7);
  std::fill_n(bytes.begin() + 512, 512, std::byte{0});
  // Zeros at the end add nothing to `words`, and padding is zeros: the number of bytes distinguishes them.
  const BlockTag tag{0x1111, 0x2222};
  const Checksum right = finish(sum_words(bytes, 0), bytes.size(), tag);
  EXPECT_NE(finish(sum_words({bytes.data(), 512}, 0), 512, tag), right);
  EXPECT_NE(finish(sum_words(bytes, 0), 1023, tag), right);
  EXPECT_NE(finish(sum_words(bytes, 0), 1024, BlockTag{0x1111, 0x2223}), right);
  EXPECT_NE(finish(sum_words(bytes, 0), 1024, BlockTag{0x1110, 0x2222}), right);
  EXPECT_NE(finish(sum_words(bytes, 0), 1024, BlockTag{0x2222, 0x1111}), right);
}

// Checksums are kept in files: later releases must compute the same values.
TEST(ChecksumTest, NeverChanges) {
  Bytes bytes(1000);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 31 + 7);
  }
  const BlockSums sums = sum_words(bytes, 3);
  EXPECT_EQ(sums.products, 0xC17CE4B70EA6CE5FULL);
  EXPECT_EQ(sums.words, 0x6C4A2805E3C19F3BULL);
  EXPECT_EQ(static_cast<std::uint64_t>(finish(sums, 1000, BlockTag{0x0123456789ABCDEF, 0xFEDCBA9876543210})),
            0x84BE069B7122995AULL);
}

TEST(ChecksumTest, CopiesOnTheWay) {
  for (const std::size_t size : {0U, 5U, 64U, 4096U, 1U << 20, (1U << 20) + 13U}) {
    const Bytes from = random_bytes(size, 8);
    for (const std::size_t offset : {0U, 3U, 24U}) {
      Bytes to(size + 100, std::byte{0xEE});
      EXPECT_EQ(copy_and_sum(to.data() + offset, from, 11), sum_words(from, 11));
      EXPECT_TRUE(size == 0 || std::memcmp(from.data(), to.data() + offset, size) == 0);
      EXPECT_TRUE(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(offset + size), to.end(),
                              [](std::byte each) { return each == std::byte{0xEE}; }));
    }
  }
}

class RowKernelTest : public ::testing::TestWithParam<RowKernel> {};

TEST_P(RowKernelTest, DoesWhatANaiveLoopDoes) {
  const RowKernel& kernel = GetParam();
  std::mt19937 random(9);
  for (int round = 0; round < 400; ++round) {
    RowRun run{.rows = 1 + random() % 5,
               .row_bytes = round % 3 == 0 ? 1 + random() % 3000 : 1 + random() % 200,
               .first_word = round % 4 == 0 ? (std::uint64_t{1} << 32) - random() % 50 : random(),
               .word_step = random() % 1000};
    // Every other round suits streaming stores: whole lines, or steps of whole words.
    const std::uint64_t unit = std::array{1U, 8U, 1U, 64U}[round % 4];
    run.row_bytes = unit == 64 ? (run.row_bytes + 63) / 64 * 64 : run.row_bytes;
    run.from_step = run.row_bytes + random() % 40;
    run.to_step = (run.row_bytes + random() % 40 + unit - 1) / unit * unit;
    const std::size_t skew = unit * (random() % 64 / unit);
    const Bytes from = random_bytes(run.rows * run.from_step + 64, static_cast<std::uint32_t>(round));
    const Bytes blank(run.rows * run.to_step + 192, std::byte{0x5A});
    Bytes storage(blank.size() + 64);
    std::byte* const to = storage.data() + (0 - reinterpret_cast<std::uintptr_t>(storage.data())) % 64;
    Bytes expected = blank;
    BlockSums sums;
    run.from = from.data() + random() % 24;
    run.to = to + skew;
    for (std::uint64_t row = 0; row < run.rows; ++row) {
      const std::span<const std::byte> piece(run.from + row * run.from_step, run.row_bytes);
      sums += naive_sums(piece, run.first_word + row * run.word_step);
      std::memcpy(expected.data() + skew + row * run.to_step, piece.data(), piece.size());
    }
    ASSERT_EQ(kernel.sum(run), sums) << "round " << round;
    for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
      std::memcpy(to, blank.data(), blank.size());
      ASSERT_EQ(kernel.copy_and_sum(run, stores), sums) << "round " << round;
      ASSERT_EQ(std::memcmp(to, expected.data(), expected.size()), 0) << "round " << round;
      std::memcpy(to, blank.data(), blank.size());
      kernel.copy(run, stores);
      ASSERT_EQ(std::memcmp(to, expected.data(), expected.size()), 0) << "round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowKernelTest, ::testing::ValuesIn(row_kernels().begin(), row_kernels().end()),
                         [](const auto& each) { return std::string(each.param.name); });

// The inverse of the last step of finish(): the value that a 64-bit mix turns into `mixed`.
std::uint64_t unmix(std::uint64_t mixed) {
  constexpr std::uint64_t kFactor = 0xE9846AF9B1A615DULL;
  std::uint64_t inverse = kFactor;  // correct in the last 3 bits; each step doubles their number
  for (int i = 0; i < 5; ++i) {
    inverse *= 2 - kFactor * inverse;
  }
  mixed ^= (mixed >> 28) ^ (mixed >> 56);
  mixed *= inverse;
  mixed ^= mixed >> 32;
  mixed *= inverse;
  return mixed ^ (mixed >> 32);
}

TEST(ChecksumTest, NoBlockHasTheChecksumThatSaysThatNoneWasMade) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
  const BlockSums sums{.products = 11, .words = 22};
  // The state of finish() before its last part, for a tag that is 0 there.
  const std::uint64_t before = unmix(static_cast<std::uint64_t>(finish(sums, 4096, {.high = 5})) - kStep);
  const BlockTag tag{.high = 5, .low = unmix(0 - kStep) - before};
  ASSERT_NE(tag.low, 0U);
  EXPECT_EQ(finish(sums, 4096, tag), Checksum{1}) << "the mix of this block is 0";
  EXPECT_NE(finish(sums, 4096, {.high = 5, .low = tag.low + 1}), kNoChecksum);
}

}  // namespace
}  // namespace cairn
