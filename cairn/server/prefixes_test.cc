#include "cairn/server/prefixes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cairn/tokens/token_sequence.h"

namespace cairn {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// The blocks of a sequence of `tokens`, two tokens a block, in a tier.
std::vector<TierBlock> blocks_of(const std::vector<Token>& tokens, CacheLevel tier) {
  const TokenBlockSequence sequence = TokenBlockSequence::create(tokens, 2, KeyHasher::dynamo()).value();
  std::vector<TierBlock> blocks;
  SequenceHash parent{0};
  for (const BlockKey& key : sequence.keys()) {
    blocks.push_back({.tier = tier, .block = {.key = key, .parent = parent}});
    parent = key.sequence_hash();
  }
  return blocks;
}

std::vector<TierBlock> together(std::initializer_list<std::vector<TierBlock>> all) {
  std::vector<TierBlock> blocks;
  for (const std::vector<TierBlock>& some : all) {
    blocks.insert(blocks.end(), some.begin(), some.end());
  }
  return blocks;
}

TEST(TopPrefixes, FindsWhereSequencesPart) {
  const auto one = blocks_of({1, 2, 3, 4, 5, 6, 7, 8}, CacheLevel::kG2);
  const auto two = blocks_of({1, 2, 3, 4, 50, 60}, CacheLevel::kG3);
  const auto other = blocks_of({9, 9, 9, 9}, CacheLevel::kG2);
  const std::vector<SharedPrefix> top = top_prefixes(together({one, two, other}), 10);
  ASSERT_THAT(top, SizeIs(1));
  EXPECT_EQ(top[0].key, one[1].block.key);
  EXPECT_EQ(top[0].blocks, 2U);
  EXPECT_EQ(top[0].sequences, 2U);
  EXPECT_EQ(top[0].below, 3U);
  EXPECT_EQ(top[0].saved(), 2U);
  // Its last block and two more in host memory, which is nearer than the disk; one on disk alone.
  EXPECT_EQ(top[0].by_tier[index_of(CacheLevel::kG2)], 3U);
  EXPECT_EQ(top[0].by_tier[index_of(CacheLevel::kG3)], 1U);
}

TEST(TopPrefixes, ABlockInTwoTiersCountsOnce) {
  const std::vector<Token> tokens = {1, 2, 3, 4};
  EXPECT_THAT(top_prefixes(together({blocks_of(tokens, CacheLevel::kG2), blocks_of(tokens, CacheLevel::kG3)}), 10),
              IsEmpty());
}

TEST(TopPrefixes, ThoseThatSaveTheMostComeFirst) {
  std::vector<TierBlock> blocks;
  for (Token turn = 0; turn < 5; ++turn) {  // five sequences share one block
    blocks = together({blocks, blocks_of({1, 1, 100 + turn, 0}, CacheLevel::kG2)});
  }
  for (Token turn = 0; turn < 2; ++turn) {  // two share six blocks
    blocks = together({blocks, blocks_of({2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 200 + turn, 0}, CacheLevel::kG2)});
  }
  const std::vector<SharedPrefix> top = top_prefixes(blocks, 10);
  ASSERT_THAT(top, SizeIs(2));
  EXPECT_EQ(top[0].saved(), 6U);
  EXPECT_EQ(top[1].saved(), 4U);
  EXPECT_THAT(top_prefixes(blocks, 1), SizeIs(1));
}

TEST(TopPrefixes, ASequenceWhoseBeginningIsGoneStillCounts) {
  auto one = blocks_of({1, 2, 3, 4, 5, 6}, CacheLevel::kG3);
  auto two = blocks_of({1, 2, 3, 4, 7, 8}, CacheLevel::kG3);
  one.erase(one.begin());
  two.erase(two.begin());
  const std::vector<SharedPrefix> top = top_prefixes(together({one, two}), 10);
  ASSERT_THAT(top, SizeIs(1));
  EXPECT_EQ(top[0].blocks, 2U);
  EXPECT_EQ(top[0].sequences, 2U);
}

}  // namespace
}  // namespace cairn
