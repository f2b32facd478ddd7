#include "cairn/layout/block_pattern.h"

#include <gtest/gtest.h>

#include "cairn/layout/layout_testing.h"

namespace cairn::testing {
namespace {

// Rows that are no whole number of words.
constexpr KvShape kShape{.layers = 3, .kv = 2, .page_size = 4, .heads = 2, .head_size = 10, .element_bits = 8};

TEST(BlockPatternTest, IsTheSameInEveryArrangementAndTouchesNothingElse) {
  for (const Arrangement arrangement : kAllArrangements) {
    TestLayout layout = TestLayout::make({.shape = kShape, .arrangement = arrangement, .blocks = 3});
    layout.fill(1);
    write_pattern(*layout.layout(), 1, 42);
    EXPECT_TRUE(layout.untouched_but({1})) << to_string(arrangement);
    EXPECT_EQ(find_stranger(*layout.layout(), 1, 42), std::nullopt) << to_string(arrangement);
    EXPECT_NE(find_stranger(*layout.layout(), 1, 43), std::nullopt) << to_string(arrangement);
    EXPECT_NE(find_stranger(*layout.layout(), 0, 42), std::nullopt) << to_string(arrangement);
  }
}

TEST(BlockPatternTest, EveryBitCounts) {
  const TestLayout test = TestLayout::make({.shape = kShape, .blocks = 1});
  const BlockLayout& layout = *test.layout();
  write_pattern(layout, 0, 7);
  const BlockLayout::Address at = layout.address(0, 2, 1, 3, 1);
  std::byte* const row = layout.regions()[at.region]->base() + at.offset;
  for (std::uint64_t byte = 0; byte < kShape.row_bytes(); ++byte) {
    row[byte] ^= std::byte{4};
    EXPECT_EQ(find_stranger(layout, 0, 7), kShape.row(2, 1, 3, 1));
    row[byte] ^= std::byte{4};
  }
  EXPECT_EQ(find_stranger(layout, 0, 7), std::nullopt);
}

TEST(BlockPatternTest, NoTwoRowsAreAlike) {
  const TestLayout test = TestLayout::make({.shape = kShape, .blocks = 1});
  const BlockLayout& layout = *test.layout();
  write_pattern(layout, 0, 7);
  const auto row = [&](std::uint32_t token) {
    const BlockLayout::Address at = layout.address(0, 0, 0, token, 0);
    return layout.regions()[at.region]->base() + at.offset;
  };
  std::memcpy(row(0), row(1), kShape.row_bytes());
  EXPECT_EQ(find_stranger(layout, 0, 7), 0U);
}

}  // namespace
}  // namespace cairn::testing
