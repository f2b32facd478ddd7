#include "cairn/tokens/hashes.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace cairn {
namespace {

constexpr std::array<Token, 9> kTokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(RouterHashTest, PlainBlocksHashAsBlocksDo) {
  std::array<BlockHash, 2> hashes{};
  ASSERT_EQ(*router_hashes(kTokens, {.block_size = 4}, hashes), 2U);
  EXPECT_EQ(value_of(hashes[0]), 14643705804678351452U);
  EXPECT_EQ(value_of(hashes[1]), 16777012769546811212U);
  ASSERT_EQ(*router_hashes(kTokens, {.block_size = 4, .seed = salt_hash("", "alpha-7b")}, hashes), 2U);
  EXPECT_EQ(value_of(hashes[0]), 16548428770143335509U);
}

TEST(RouterHashTest, EagleWindowsOverlapByOneToken) {
  const RouterHashing eagle{.block_size = 4, .eagle = true};
  std::array<BlockHash, 2> hashes{};
  ASSERT_EQ(*router_hashes(kTokens, eagle, hashes), 2U);
  EXPECT_EQ(value_of(hashes[0]), 1914873892905420881U);
  EXPECT_EQ(hashes[1], hash_block(std::span(kTokens).subspan(4, 5), kNoSalt));
  EXPECT_EQ(router_block_count(8, eagle), 1U);
  EXPECT_EQ(router_block_count(4, eagle), 0U);
  EXPECT_EQ(router_block_count(0, eagle), 0U);
  EXPECT_EQ(router_block_count(8, {}), 0U);
}

TEST(RouterHashTest, MultimodalHashesFollowTheTokensSorted) {
  std::array<BlockHash, 2> hashes{};
  const std::vector<std::vector<std::uint64_t>> one = {{0xAA}};
  ASSERT_EQ(*router_hashes(kTokens, {.block_size = 4}, hashes, one), 2U);
  EXPECT_EQ(value_of(hashes[0]), 3419922903927624976U);
  EXPECT_EQ(value_of(hashes[1]), 16777012769546811212U) << "a block without any is plain";

  const std::vector<std::vector<std::uint64_t>> in_order = {{1, 2}, {7}};
  const std::vector<std::vector<std::uint64_t>> swapped = {{2, 1}, {7}};
  std::array<BlockHash, 2> again{};
  ASSERT_TRUE(router_hashes(kTokens, {.block_size = 4}, hashes, in_order));
  ASSERT_TRUE(router_hashes(kTokens, {.block_size = 4}, again, swapped));
  EXPECT_EQ(hashes, again);
}

TEST(RouterHashTest, PadTokensKeepThirtyBits) {
  EXPECT_EQ(mm_pad_token(0), 1'000'000U);
  EXPECT_EQ(mm_pad_token(0xFFFF'FFFF'FFFF'FFFF), 1'000'000U + (1U << 30) - 1);
  EXPECT_EQ(mm_pad_token((1U << 30) + 5), 1'000'005U);
}

TEST(RouterHashTest, BadCallsWriteNothing) {
  std::array<BlockHash, 1> hashes{BlockHash{7}};
  EXPECT_EQ(router_hashes(kTokens, {}, hashes).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(router_hashes(kTokens, {.block_size = 4}, hashes).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(hashes[0], BlockHash{7});
}

}  // namespace
}  // namespace cairn
