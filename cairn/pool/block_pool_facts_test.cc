// What one pool knows of a block and another pool takes over: keys, parents, priorities, checksums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::uint64_t> notes_of(const std::vector<BlockFacts>& facts) {
  std::vector<std::uint64_t> checksums;
  for (const BlockFacts& each : facts) {
    checksums.push_back(each.checksum);
  }
  return checksums;
}

ImmutableBlocks take_over(BlockPool& pool, const std::vector<BlockFacts>& facts) {
  return *(*(*pool.allocate(static_cast<std::uint32_t>(facts.size()))).complete_as(facts)).register_blocks();
}

TEST(BlockFactsTest, GoFromPoolToPool) {
  const auto above = make_pool(8);
  const auto below = make_pool(8, {.tier = CacheLevel::kG2, .checksums = true});
  const Keys keys = chain(1, 3);
  const std::vector<BlockHash> hashes{BlockHash{11}, BlockHash{12}, BlockHash{13}};
  const ImmutableBlocks blocks = *(*(*above->allocate(3)).complete({.keys = keys, .tokens_hashes = hashes}))
                                      .register_blocks(Retention{.priority = 70});
  std::vector<BlockFacts> facts = blocks.pin().facts();
  EXPECT_EQ(facts, blocks.facts());
  ASSERT_THAT(facts, SizeIs(3));
  EXPECT_THAT(facts, Each(Field(&BlockFacts::priority, 70U)));
  EXPECT_THAT(notes_of(facts), ElementsAre(0, 0, 0));
  EXPECT_EQ(facts[2].block, (ResidentBlock{keys[2], keys[1].sequence_hash(), BlockHash{13}}));

  facts[0].checksum = 5;
  // The last block alone: its parent is not in the pool, but all facts were handed over.
  const std::vector<BlockFacts> last{facts[2], facts[0]};
  const ImmutableBlocks lower = take_over(*below, last);
  EXPECT_EQ(lower.facts()[0].block, facts[2].block);
  EXPECT_THAT(notes_of(lower.facts()), ElementsAre(0, 5));
  EXPECT_EQ(lower.tier(), CacheLevel::kG2);
  EXPECT_EQ(ImmutableBlocks().tier(), std::nullopt);
}

TEST(BlockFactsTest, ChecksumsEndWithTheKeyTheyWereMadeFor) {
  const auto pool = make_pool(1, {.checksums = true});
  const std::vector<BlockFacts> facts{{.block = {.key = chain(1, 1)[0]}, .checksum = 7}};
  EXPECT_THAT(notes_of(take_over(*pool, facts).facts()), ElementsAre(7));
  const ImmutableBlocks other = *(*(*pool->allocate(1)).complete({.keys = chain(2, 1)})).register_blocks();
  EXPECT_THAT(notes_of(other.facts()), ElementsAre(0));
}

TEST(BlockFactsTest, ChecksumsAreKeptIfThePoolIsConfiguredTo) {
  const auto pool = make_pool(1);
  const std::vector<BlockFacts> facts{{.block = {.key = chain(1, 1)[0]}, .checksum = 7}};
  EXPECT_THAT(notes_of(take_over(*pool, facts).facts()), ElementsAre(0));
}

TEST(BlockFactsTest, AreThoseOfEveryBlock) {
  const auto pool = make_pool(2);
  const std::vector<BlockFacts> facts{{.block = {.key = chain(1, 1)[0]}}};
  auto refused = (*pool->allocate(2)).complete_as(facts);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().blocks.size(), 2U);
  EXPECT_THAT(ImmutableBlocks().facts(), IsEmpty());
}

}  // namespace
}  // namespace cairn::testing
