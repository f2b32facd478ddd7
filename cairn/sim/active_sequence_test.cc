#include "cairn/sim/active_sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {
namespace {

using ::testing::ElementsAre;

class ActiveSequenceTest : public ::testing::Test {
 protected:
  ActiveSequence make(Token tokens, const SequenceOptions& options) {
    return *ActiveSequence::create(tokens_up_to(tokens), options, identities_);
  }

  IdentitySource identities_{1};
};

TEST_F(ActiveSequenceTest, HasAFullBlockForEachBlockSizeAndAPartialOneForTheRest) {
  const ActiveSequence with_rest = make(35, {.block_size = 16});
  EXPECT_EQ(with_rest.unique_blocks().size(), 3U);
  EXPECT_TRUE(with_rest.unique_blocks()[2].is_partial());
  EXPECT_EQ(with_rest.keys().size(), 2U);
  const ActiveSequence without = make(64, {.block_size = 16});
  EXPECT_EQ(without.unique_blocks().size(), 4U);
  EXPECT_TRUE(without.unique_blocks()[3].is_full());
  EXPECT_EQ(without.unique_blocks()[3].hash(), SequenceHash{3888788807566526800U});
  EXPECT_TRUE(make(0, {.block_size = 16}).unique_blocks().empty());
}

TEST_F(ActiveSequenceTest, RejectsABlockSizeBelowTwo) {
  EXPECT_FALSE(ActiveSequence::create({}, {.block_size = 1}, identities_));
  EXPECT_FALSE(ActiveSequence::create({}, {.block_size = 0}, identities_));
}

// Sequences with equal tokens share full blocks, but not partial ones. A block gets its key one token late.
TEST_F(ActiveSequenceTest, ABlockGetsItsKeyWhenTheNextOneBegins) {
  ActiveSequence first = make(15, {.block_size = 16});
  const std::optional<Use> created = first.take_creation_signal();
  ASSERT_TRUE(created);
  ASSERT_EQ(created->blocks.size(), 1U);
  const UniqueBlock partial = created->blocks[0];
  EXPECT_TRUE(partial.is_partial());
  EXPECT_TRUE(created->keys.empty());
  EXPECT_FALSE(created->parent);

  EXPECT_TRUE(first.push(15)->empty());
  const TokenMoves moves = *first.push(16);
  ASSERT_TRUE(moves.promote);
  EXPECT_EQ(moves.promote->partial, partial.id());
  EXPECT_EQ(moves.promote->parent, std::nullopt);
  EXPECT_EQ(moves.promote->hash, first.keys()[0].sequence_hash());
  ASSERT_TRUE(moves.use);
  EXPECT_EQ(moves.use->blocks.size(), 1U);
  EXPECT_TRUE(moves.use->blocks[0].is_partial());
  EXPECT_FALSE(moves.release);

  const ActiveSequence second = make(17, {.block_size = 16});
  EXPECT_EQ(first.unique_blocks()[0], second.unique_blocks()[0]);
  EXPECT_NE(first.unique_blocks()[1], second.unique_blocks()[1]);

  for (Token token = 17; token < 32; ++token) {
    EXPECT_TRUE(first.push(token)->empty());
  }
  const TokenMoves next = *first.push(32);
  EXPECT_EQ(next.promote->parent, first.unique_blocks()[0].hash());
  for (Token token = 33; token < 48; ++token) {
    EXPECT_TRUE(first.push(token)->empty());
  }
  EXPECT_EQ(first.push(48)->promote->parent, first.unique_blocks()[1].hash());
  const ActiveSequence whole = make(49, {.block_size = 16});
  EXPECT_TRUE(std::ranges::equal(first.keys(), whole.keys()));
  EXPECT_TRUE(std::ranges::equal(first.block_hashes(), whole.block_hashes()));
}

TEST_F(ActiveSequenceTest, AFullPromptOnlyBeginsABlock) {
  ActiveSequence sequence = make(32, {.block_size = 16});
  const TokenMoves moves = *sequence.push(1);
  EXPECT_FALSE(moves.promote);
  EXPECT_TRUE(moves.use);
  EXPECT_FALSE(moves.use->parent);
}

TEST_F(ActiveSequenceTest, TheLastTokenReleasesAllBlocksLeafFirst) {
  ActiveSequence sequence = make(14, {.block_size = 16, .max_output_tokens = 3});
  EXPECT_TRUE(sequence.generate()->empty());
  EXPECT_TRUE(sequence.generate()->empty());
  const TokenMoves moves = *sequence.generate();
  EXPECT_TRUE(moves.promote);
  EXPECT_TRUE(moves.use);
  ASSERT_TRUE(moves.release);
  EXPECT_TRUE(moves.release->last_first);
  ASSERT_EQ(moves.release->blocks.size(), 2U);
  EXPECT_TRUE(moves.release->blocks[0].is_full());
  EXPECT_TRUE(moves.release->blocks[1].is_partial());
  EXPECT_FALSE(sequence.generate());
  EXPECT_EQ(sequence.generated_tokens(), 3U);
}

TEST_F(ActiveSequenceTest, GenerationEndsWithTwoBlocksReleased) {
  ActiveSequence sequence = make(14, {.block_size = 16, .max_output_tokens = 5});
  std::vector<bool> asks;
  for (int i = 0; i < 5; ++i) {
    asks.push_back(!sequence.generate()->empty());
  }
  EXPECT_THAT(asks, ElementsAre(false, false, true, false, true));
}

TEST_F(ActiveSequenceTest, PreparesChunksUntilTheyAreCommitted) {
  ActiveSequence sequence = make(10, {.block_size = 4});
  const auto blocks_and_keys = [&](std::size_t tokens) {
    const std::optional<Use> use = sequence.prepare_allocation(tokens);
    return use ? std::vector<std::size_t>{use->blocks.size(), use->keys.size(), use->tokens_hashes.size()}
               : std::vector<std::size_t>{};
  };
  EXPECT_THAT(blocks_and_keys(4), ElementsAre(1, 1, 1));
  EXPECT_THAT(blocks_and_keys(8), ElementsAre(2, 2, 2));
  EXPECT_THAT(blocks_and_keys(10), ElementsAre(3, 2, 2));
  EXPECT_THAT(blocks_and_keys(10), ElementsAre(3, 2, 2));
  EXPECT_THAT(blocks_and_keys(1'000), ElementsAre(3, 2, 2));
  EXPECT_THAT(blocks_and_keys(0), ElementsAre());
  sequence.commit_allocation(4);
  EXPECT_THAT(blocks_and_keys(4), ElementsAre());
  EXPECT_THAT(blocks_and_keys(10), ElementsAre(2, 1, 1));
  EXPECT_EQ(sequence.prepare_allocation(10)->parent, sequence.unique_blocks()[0]);
  EXPECT_FALSE(sequence.prepare_allocation(10)->token_ids);
}

TEST_F(ActiveSequenceTest, PopUndoesOnePushButKeepsTheKey) {
  ActiveSequence sequence = make(4, {.block_size = 4});
  EXPECT_FALSE(sequence.pop());
  ASSERT_TRUE(sequence.push(4)->use);
  ASSERT_TRUE(sequence.pop());
  EXPECT_EQ(sequence.size(), 4U);
  EXPECT_EQ(sequence.unique_blocks().size(), 1U);
  EXPECT_FALSE(sequence.pop());

  for (Token token = 4; token < 8; ++token) {
    ASSERT_TRUE(sequence.push(token));
  }
  ASSERT_TRUE(sequence.push(8)->promote);
  ASSERT_TRUE(sequence.pop());
  EXPECT_EQ(sequence.keys().size(), 2U);
  const TokenMoves again = *sequence.push(9);
  EXPECT_FALSE(again.promote);
  EXPECT_TRUE(again.use);
  EXPECT_EQ(sequence.generated_tokens(), 5U);
}

TEST_F(ActiveSequenceTest, APreemptionKeepsTokensAndKeys) {
  ActiveSequence sequence = make(6, {.block_size = 4, .enable_prefix_caching = false});
  static_cast<void>(sequence.take_creation_signal());
  for (Token token = 6; token < 9; ++token) {
    ASSERT_TRUE(sequence.push(token));
    sequence.commit_allocation(sequence.size());
  }
  const std::vector<UniqueBlock> before(sequence.unique_blocks().begin(), sequence.unique_blocks().end());
  EXPECT_EQ(sequence.reset_with_signal().blocks.size(), 3U);
  EXPECT_EQ(sequence.num_allocated_tokens(), 0U);
  EXPECT_TRUE(sequence.free_signal().blocks.empty());
  EXPECT_EQ(sequence.size(), 9U);
  EXPECT_TRUE(std::ranges::equal(sequence.take_creation_signal()->blocks, before));
}

TEST_F(ActiveSequenceTest, WithoutPrefixCachingKeysAreRandomAndTokensHashesAreNot) {
  const SequenceOptions uncached{.block_size = 4, .enable_prefix_caching = false};
  const ActiveSequence first = make(8, uncached);
  const ActiveSequence second = make(8, uncached);
  EXPECT_NE(first.unique_blocks()[0], second.unique_blocks()[0]);
  EXPECT_TRUE(std::ranges::equal(first.block_hashes(), second.block_hashes()));
  EXPECT_EQ(first.keys()[1].position(), 1U);
  EXPECT_EQ(first.keys()[1].parent_fragment(), 0U);
  EXPECT_EQ(first.keys()[1].sequence_hash(), first.unique_blocks()[1].hash());

  IdentitySource same_seed(1);
  const ActiveSequence repeated = *ActiveSequence::create(tokens_up_to(8), uncached, same_seed);
  EXPECT_TRUE(std::ranges::equal(first.keys(), repeated.keys()));
}

TEST_F(ActiveSequenceTest, MovesCarryTokensIfEmitTokenIdsIsSet) {
  ActiveSequence sequence = make(5, {.block_size = 2, .emit_token_ids = true});
  EXPECT_THAT(*sequence.prepare_allocation(5)->token_ids, ElementsAre(0, 1, 2, 3));
  sequence.commit_allocation(2);
  EXPECT_THAT(*sequence.prepare_allocation(5)->token_ids, ElementsAre(2, 3));
  sequence.commit_allocation(4);
  EXPECT_FALSE(sequence.prepare_allocation(5)->token_ids);
  ASSERT_TRUE(sequence.push(5));
  for (Token token = 6; token < 40; token += 2) {
    EXPECT_THAT(*sequence.push(token)->promote->token_ids, ElementsAre(token - 2, token - 1));
    ASSERT_TRUE(sequence.push(token + 1)->empty());
  }
}

}  // namespace
}  // namespace cairn::sim
