// Finding blocks: a prefix, scattered keys, presence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::UnorderedElementsAreArray;

class MatchTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  const Keys keys_ = chain(1, 5);
  RecordingObserver observer_;
  std::unique_ptr<BlockPool> pool_ = make_pool(8, {.policy = GetParam(), .observers = {&observer_}});
};

TEST_P(MatchTest, APrefixEndsAtTheFirstMiss) {
  cache(*pool_, keys_);
  EXPECT_EQ(pool_->reset(Keys{keys_[3]}).reset, 1U);
  const ImmutableBlocks found = pool_->match_prefix(keys_);
  EXPECT_THAT(keys_of(found), ElementsAreArray(first_of(keys_, 3)));
  EXPECT_EQ(pool_->counts(), (PoolCounts{.total = 8, .free = 4, .inactive = 1, .active = 3, .registered = 4}));
  EXPECT_TRUE(pool_->match_prefix(chain(2, 1)).empty());
  EXPECT_TRUE(pool_->match_prefix({}).empty());
  pool_->check_invariants();
}

TEST_P(MatchTest, FindsActiveBlocksAndInactiveOnesAlike) {
  const ImmutableBlocks held = store(*pool_, first_of(keys_, 2));
  cache(*pool_, {keys_[2], keys_[3]});
  EXPECT_EQ(pool_->match_prefix(keys_).size(), 4U);
  EXPECT_THAT(pool_->match_prefix(first_of(keys_, 2)).block_ids(), ElementsAreArray(held.block_ids()));
}

TEST_P(MatchTest, ScatteredKeysAreEachForThemselves) {
  cache(*pool_, keys_);
  const Keys missing = chain(2, 2);
  const Keys asked = {missing[0], keys_[4], keys_[1], missing[1], keys_[4]};
  const ScatteredMatch match = pool_->match_scattered(asked);
  EXPECT_THAT(keys_of(match.blocks), ElementsAre(keys_[4], keys_[1], keys_[4]));
  EXPECT_THAT(match.position, ElementsAre(std::nullopt, Optional(0), Optional(1), std::nullopt, Optional(2)));
  EXPECT_EQ(match.blocks.block_ids()[0], match.blocks.block_ids()[2]);
  EXPECT_EQ(pool_->counts().active, 2U);
}

TEST_P(MatchTest, NothingScatteredIsFoundInAnEmptyPool) {
  const ScatteredMatch match = pool_->match_scattered(keys_);
  EXPECT_TRUE(match.blocks.empty());
  EXPECT_THAT(match.position, ElementsAreArray(std::vector<std::optional<std::uint32_t>>(5)));
  EXPECT_THAT(pool_->match_scattered({}).position, IsEmpty());
}

TEST_P(MatchTest, AScanPassesMissesOver) {
  cache(*pool_, keys_);
  const Keys asked = {chain(2, 1)[0], keys_[3], keys_[0], keys_[3]};
  EXPECT_THAT(keys_of(pool_->scan(asked)), ElementsAre(keys_[3], keys_[0], keys_[3]));
  EXPECT_TRUE(pool_->scan(chain(2, 3)).empty());
}

TEST_P(MatchTest, TheSameKeyTwiceIsHeldTwiceAndReleasedTwice) {
  cache(*pool_, keys_);
  const Keys twice = {keys_[0], keys_[0]};
  {
    ImmutableBlocks found = pool_->match_prefix(twice);
    EXPECT_EQ(found.size(), 2U);
    found.release_tail(1);
    EXPECT_EQ(pool_->counts().active, 1U);
  }
  EXPECT_EQ(pool_->counts().active, 0U);
  pool_->check_invariants();
}

TEST_P(MatchTest, LookingTouchesNothing) {
  cache(*pool_, keys_);
  cache(*pool_, chain(2, 3));
  (void)observer_.take();
  const PoolCounts before = pool_->counts();
  EXPECT_TRUE(pool_->contains(keys_[4]));
  EXPECT_FALSE(pool_->contains(chain(3, 1)[0]));
  EXPECT_EQ(pool_->count_prefix(keys_), 5U);
  EXPECT_EQ(pool_->count_prefix(joined(first_of(keys_, 2), chain(3, 2))), 2U);
  EXPECT_EQ(pool_->count_prefix({}), 0U);
  EXPECT_EQ(pool_->counts(), before);
  EXPECT_THAT(observer_.take(), IsEmpty());
  EXPECT_THAT(evicted_for(*pool_, 1), ElementsAre(keys_[4]));
}

TEST_P(MatchTest, LooksBeyondAChunkOfKeys) {
  const auto pool = make_pool(200, {.policy = GetParam()});
  const Keys longer = chain(1, 150);
  cache(*pool, longer);
  EXPECT_EQ(pool->match_prefix(longer).size(), 150U);
  EXPECT_THAT(keys_of(pool->scan(reversed(longer))), ElementsAreArray(reversed(longer)));
  EXPECT_EQ(pool->reset(Keys{longer[97]}).reset, 1U);
  EXPECT_EQ(pool->count_prefix(longer), 97U);
  EXPECT_EQ(pool->match_prefix(longer).size(), 97U);
  EXPECT_EQ(pool->match_scattered(longer).blocks.size(), 149U);
  EXPECT_EQ(pool->match_prefix(chain(1, 1000)).size(), 97U);
}

TEST_P(MatchTest, DistinguishesKeysByPositionAndParent) {
  const SequenceHash hash{0x123456789ABCDEF};
  const BlockKey one = BlockKey::make_checked(1, hash, SequenceHash{5});
  const BlockKey other_parent = BlockKey::make_checked(1, hash, SequenceHash{6});
  const BlockKey other_position = BlockKey::make_checked(2, hash, SequenceHash{5});
  cache(*pool_, {one});
  EXPECT_FALSE(pool_->contains(other_parent));
  EXPECT_FALSE(pool_->contains(other_position));
  cache(*pool_, {other_parent});
  cache(*pool_, {other_position});
  EXPECT_EQ(pool_->counts().registered, 3U);
  pool_->check_invariants();
}

TEST_P(MatchTest, HitsAndLookupsAreCounted) {
  cache(*pool_, keys_);
  (void)pool_->match_prefix(joined(keys_, chain(2, 2)));
  (void)pool_->scan(chain(2, 2));
  EXPECT_EQ(pool_->stats().lookups, 9U);
  EXPECT_EQ(pool_->stats().hits, 5U);
}

TEST_P(MatchTest, ListsWhatIsResidentPieceByPiece) {
  cache(*pool_, keys_);
  const MutableBlocks unnamed = *pool_->allocate(1);
  std::vector<ResidentBlock> blocks;
  std::uint32_t next = 0;
  for (std::uint32_t calls = 0; next < pool_->capacity(); ++calls) {
    ASSERT_LT(calls, 3U);
    next = pool_->list_resident(next, 3, blocks);
  }
  EXPECT_EQ(next, 8U);
  Keys listed;
  for (const ResidentBlock& block : blocks) {
    listed.push_back(block.key);
  }
  EXPECT_THAT(listed, UnorderedElementsAreArray(keys_));
  EXPECT_EQ(pool_->list_resident(8, 100, blocks), 8U);
  EXPECT_EQ(pool_->list_resident(1000, 0xFFFFFFFF, blocks), 8U);
  EXPECT_EQ(blocks.size(), 5U);
}

TEST_P(MatchTest, ListsBlocksWithTheirBlocksAndTouchesNothing) {
  cache(*pool_, keys_);
  const PoolStats before = pool_->stats();
  std::vector<ListedBlock> found;
  std::uint32_t next = 0;
  for (std::uint32_t round = 0; next < pool_->capacity(); ++round) {
    ASSERT_LT(round, 8U);
    next = pool_->list_blocks(next, 4, 2, found);
  }
  ASSERT_EQ(found.size(), keys_.size());
  for (const ListedBlock& each : found) {
    EXPECT_EQ(pool_->hold(std::vector{each.facts.block.key}).block_ids()[0], each.block_id);
  }
  EXPECT_EQ(pool_->stats().lookups, before.lookups);
  EXPECT_EQ(pool_->list_blocks(1000, 0xFFFFFFFF, 10, found), pool_->capacity());
}

INSTANTIATE_TEST_SUITE_P(Policies, MatchTest, ::testing::ValuesIn(kAllPolicies));

}  // namespace
}  // namespace cairn::testing
