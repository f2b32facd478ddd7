#include "cairn/tokens/token_sequence.h"

#include <gtest/gtest.h>

#include <array>

namespace cairn {
namespace {

constexpr std::array<Token, 4> kFour = {1, 2, 3, 4};
constexpr std::array<Token, 4> kNext = {5, 6, 7, 8};

TEST(PartialTokenBlockTest, CommitsOneBlockAfterTheOther) {
  PartialTokenBlock partial = *PartialTokenBlock::create(4, KeyHasher::dynamo());
  ASSERT_TRUE(partial.push(kFour));
  const TokenBlock first = *partial.commit();
  EXPECT_EQ(value_of(first.block_hash()), 14643705804678351452U);
  EXPECT_EQ(value_of(first.sequence_hash()), 14643705804678351452U);
  EXPECT_EQ(first.parent_sequence_hash(), std::nullopt);
  EXPECT_EQ(first.position(), 0U);
  EXPECT_EQ(partial.size(), 0U);
  EXPECT_EQ(partial.position(), 1U);

  for (const Token token : kNext) {
    ASSERT_TRUE(partial.push(token));
  }
  const TokenBlock second = *partial.commit();
  EXPECT_EQ(value_of(second.block_hash()), 16777012769546811212U);
  EXPECT_EQ(value_of(second.sequence_hash()), 4945711292740353085U);
  EXPECT_EQ(second.parent_sequence_hash(), first.sequence_hash());
  EXPECT_EQ(second.position(), 1U);
  EXPECT_TRUE(first.key().is_parent_of(second.key()));
  EXPECT_TRUE(std::ranges::equal(first.tokens(), kFour)) << "a block keeps its tokens";
}

TEST(PartialTokenBlockTest, TakesTokensBack) {
  PartialTokenBlock partial = *PartialTokenBlock::create(4, KeyHasher::dynamo());
  EXPECT_EQ(partial.pop(), std::nullopt);
  ASSERT_TRUE(partial.push(kFour));
  EXPECT_EQ(partial.remaining(), 0U);
  EXPECT_EQ(partial.pop(), Token{4});
  EXPECT_EQ(partial.remaining(), 1U);
  EXPECT_TRUE(std::ranges::equal(partial.tokens(), std::span(kFour).first<3>()));
}

TEST(PartialTokenBlockTest, TokensBeyondTheBlockAreNamed) {
  PartialTokenBlock partial = *PartialTokenBlock::create(4, KeyHasher::dynamo());
  ASSERT_TRUE(partial.push(Token{9}));
  const Status pushed = partial.push(kFour);
  ASSERT_FALSE(pushed);
  EXPECT_EQ(pushed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(pushed.error().message.find("4 tokens do not fit into the block at position 0"), std::string::npos);
  EXPECT_EQ(partial.size(), 1U);
}

TEST(PartialTokenBlockTest, OnlyFullBlocksAreCommitted) {
  PartialTokenBlock partial = *PartialTokenBlock::create(4, KeyHasher::dynamo());
  ASSERT_TRUE(partial.push(Token{9}));
  EXPECT_EQ(partial.commit().error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(partial.size(), 1U);

  const BlockKey last = BlockKey::make_checked(BlockKey::kMaxPosition, SequenceHash{1}, SequenceHash{2});
  PartialTokenBlock beyond = *PartialTokenBlock::create(4, KeyHasher::dynamo(), last);
  ASSERT_TRUE(beyond.push(kFour));
  EXPECT_EQ(beyond.commit().error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(beyond.size(), 4U);
}

TEST(PartialTokenBlockTest, ABlockHasTokens) {
  EXPECT_EQ(PartialTokenBlock::create(0, KeyHasher::dynamo()).error().code, ErrorCode::kInvalidArgument);
}

TEST(PartialTokenBlockTest, SomeSchemesHaveNoKeysForTokens) {
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kSglang});
  EXPECT_EQ(PartialTokenBlock::create(4, hasher).error().code, ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cairn
