#include "cairn/events/residency_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/events/events_testing.h"

namespace cairn {
namespace {

using events_testing::block_at;
using events_testing::chain;
using events_testing::keys_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CacheLevel kG1 = CacheLevel::kG1;
constexpr CacheLevel kG2 = CacheLevel::kG2;

Event stored(std::uint64_t sequence, CacheLevel tier, const std::vector<ResidentBlock>& blocks) {
  Stored data;
  if (blocks.front().key.position() != 0) {
    data.parent = blocks.front().parent;
  }
  for (const ResidentBlock& block : blocks) {
    data.blocks.push_back({block.key, block.tokens_hash});
  }
  return {sequence, tier, data};
}

Event removed(std::uint64_t sequence, CacheLevel tier, const std::vector<ResidentBlock>& blocks) {
  return {sequence, tier, Removed{keys_of(blocks)}};
}

TEST(ResidencyViewTest, FollowsEventsFromTheStart) {
  ResidencyView view;
  ASSERT_TRUE(view.apply(stored(1, kG1, chain(1, 0, 3))));
  ASSERT_TRUE(view.apply(stored(2, kG2, chain(1, 1, 2))));
  EXPECT_EQ(view.sequence(), 2U);
  EXPECT_EQ(view.size(kG1), 3U);
  EXPECT_EQ(view.size(kG2), 2U);
  EXPECT_EQ(view.size(), 5U);
  EXPECT_EQ(view.sorted_blocks(kG1), chain(1, 0, 3));
  EXPECT_EQ(view.sorted_blocks(kG2), chain(1, 1, 2));
  EXPECT_TRUE(view.contains(kG1, block_at(1, 0).key));
  EXPECT_FALSE(view.contains(kG2, block_at(1, 0).key));
  EXPECT_EQ(view.tiers_holding(block_at(1, 0).key), 0b01U);
  EXPECT_EQ(view.tiers_holding(block_at(1, 1).key), 0b11U);
  EXPECT_EQ(view.tiers_holding(block_at(2, 1).key), 0b00U);

  ASSERT_TRUE(view.apply(removed(3, kG1, chain(1, 1, 2))));
  EXPECT_EQ(view.sorted_blocks(kG1), chain(1, 0, 1));
  ASSERT_TRUE(view.apply(Event{4, kG2, Cleared{}}));
  EXPECT_THAT(view.sorted_blocks(kG2), IsEmpty());
  EXPECT_EQ(view.size(), 1U);
}

TEST(ResidencyViewTest, ASnapshotReplacesEverything) {
  ResidencyView view;
  ASSERT_TRUE(view.apply(stored(1, kG1, chain(1, 0, 3))));
  ASSERT_TRUE(view.apply(Snapshot{.sequence = 9, .tiers = {{kG2, chain(2, 0, 2)}}}));
  EXPECT_EQ(view.sequence(), 9U);
  EXPECT_EQ(view.size(kG1), 0U);
  EXPECT_EQ(view.sorted_blocks(kG2), chain(2, 0, 2));
  EXPECT_TRUE(view.apply(removed(10, kG2, chain(2, 1, 1))));
}

TEST(ResidencyViewTest, BlocksOfASuspendedTierAreNotFoundUntilItResumes) {
  ResidencyView view;
  ASSERT_TRUE(view.apply(stored(1, kG1, chain(1, 0, 1))));
  ASSERT_TRUE(view.apply(stored(2, kG2, chain(1, 0, 3))));
  ASSERT_TRUE(view.apply(Event{3, kG2, Suspended{}}));
  EXPECT_TRUE(view.is_suspended(kG2));
  EXPECT_FALSE(view.is_suspended(kG1));
  EXPECT_TRUE(view.contains(kG1, block_at(1, 0).key));
  EXPECT_FALSE(view.contains(kG2, block_at(1, 0).key));
  EXPECT_EQ(view.tiers_holding(block_at(1, 0).key), 0b01U);
  EXPECT_EQ(view.tiers_holding(block_at(1, 1).key), 0b00U);
  EXPECT_EQ(view.sorted_blocks(kG2), chain(1, 0, 3));
  EXPECT_EQ(view.size(kG2), 3U);
  EXPECT_EQ(view.size(), 4U);

  // Changes meanwhile are visible after the tier resumes.
  ASSERT_TRUE(view.apply(removed(4, kG2, chain(1, 2, 1))));
  ASSERT_TRUE(view.apply(stored(5, kG2, chain(2, 0, 1))));
  EXPECT_FALSE(view.contains(kG2, block_at(2, 0).key));
  ASSERT_TRUE(view.apply(Event{6, kG2, Resumed{}}));
  EXPECT_FALSE(view.is_suspended(kG2));
  EXPECT_EQ(view.tiers_holding(block_at(1, 0).key), 0b11U);
  EXPECT_TRUE(view.contains(kG2, block_at(1, 1).key));
  EXPECT_FALSE(view.contains(kG2, block_at(1, 2).key));
  EXPECT_TRUE(view.contains(kG2, block_at(2, 0).key));
}

TEST(ResidencyViewTest, ClearedDoesNotResume) {
  ResidencyView view;
  ASSERT_TRUE(view.apply(Event{1, kG1, Suspended{}}));
  ASSERT_TRUE(view.apply(Event{2, kG1, Cleared{}}));
  EXPECT_TRUE(view.is_suspended(kG1));
  ASSERT_TRUE(view.apply(stored(3, kG1, chain(1, 0, 1))));
  EXPECT_FALSE(view.contains(kG1, block_at(1, 0).key));
}

TEST(ResidencyViewTest, ASnapshotSaysWhatIsSuspended) {
  ResidencyView view;
  ASSERT_TRUE(view.apply(Event{1, kG1, Suspended{}}));
  ASSERT_TRUE(view.apply(Snapshot{
      .sequence = 9,
      .tiers = {{.tier = kG1, .blocks = chain(1, 0, 1)}, {.tier = kG2, .blocks = chain(1, 0, 1), .suspended = true}}}));
  EXPECT_EQ(view.tiers_holding(block_at(1, 0).key), 0b01U);
  ASSERT_TRUE(view.apply(Event{10, kG2, Resumed{}}));
  EXPECT_EQ(view.tiers_holding(block_at(1, 0).key), 0b11U);
}

constexpr CacheLevel kG3 = CacheLevel::kG3;

TEST(ResidencyViewTest, APrefixMatchEndsAtTheFirstKeyThatNoTierHolds) {
  ResidencyView view;
  const std::vector<BlockKey> keys = keys_of(chain(1, 0, 10));
  EXPECT_EQ(view.match_prefix(keys), ResidencyView::PrefixMatch());
  ASSERT_TRUE(view.apply(stored(1, kG1, chain(1, 0, 3))));
  ASSERT_TRUE(view.apply(stored(2, kG2, chain(1, 1, 4))));
  ASSERT_TRUE(view.apply(stored(3, kG3, chain(1, 4, 2))));
  ASSERT_TRUE(view.apply(stored(4, kG1, chain(1, 8, 1))));  // behind the gap at 6
  EXPECT_EQ(view.match_prefix(keys), (ResidencyView::PrefixMatch{.blocks = 6, .by_tier = {3, 2, 1}}));
  EXPECT_EQ(view.match_prefix(std::span(keys).first(2)), (ResidencyView::PrefixMatch{.blocks = 2, .by_tier = {2}}));
  EXPECT_EQ(view.match_prefix({}), ResidencyView::PrefixMatch());
  EXPECT_EQ(view.match_prefix(keys_of(chain(2, 0, 3))), ResidencyView::PrefixMatch());
  EXPECT_EQ(view.match_prefix(std::span(keys).subspan(7)), ResidencyView::PrefixMatch())
      << "only from the first key on";
}

TEST(ResidencyViewTest, APrefixMatchCanBeOfSomeTiersOnly) {
  ResidencyView view;
  const std::vector<BlockKey> keys = keys_of(chain(1, 0, 10));
  ASSERT_TRUE(view.apply(stored(1, kG1, chain(1, 0, 3))));
  ASSERT_TRUE(view.apply(stored(2, kG2, chain(1, 0, 5))));
  EXPECT_EQ(view.match_prefix(keys, 0b01).blocks, 3U);
  EXPECT_EQ(view.match_prefix(keys, 0b10), (ResidencyView::PrefixMatch{.blocks = 5, .by_tier = {0, 5}}));
  EXPECT_EQ(view.match_prefix(keys, 0b00).blocks, 0U);
}

TEST(ResidencyViewTest, APrefixMatchDoesNotCountSuspendedTiers) {
  ResidencyView view;
  const std::vector<BlockKey> keys = keys_of(chain(1, 0, 10));
  ASSERT_TRUE(view.apply(stored(1, kG1, chain(1, 0, 2))));
  ASSERT_TRUE(view.apply(stored(2, kG2, chain(1, 0, 5))));
  ASSERT_TRUE(view.apply(Event{3, kG2, Suspended{}}));
  EXPECT_EQ(view.match_prefix(keys), (ResidencyView::PrefixMatch{.blocks = 2, .by_tier = {2}}));
  ASSERT_TRUE(view.apply(Event{4, kG2, Resumed{}}));
  EXPECT_EQ(view.match_prefix(keys), (ResidencyView::PrefixMatch{.blocks = 5, .by_tier = {2, 3}}));
}

// The same answer as a lookup of each key, in a view of many sequences with holes.
TEST(ResidencyViewTest, APrefixMatchAgreesWithSingleLookups) {
  ResidencyView view;
  std::uint64_t event = 0;
  for (std::uint32_t sequence = 0; sequence < 200; ++sequence) {
    ASSERT_TRUE(view.apply(stored(++event, kG1, chain(sequence, 0, 1 + sequence % 20))));
    ASSERT_TRUE(view.apply(stored(++event, kG2, chain(sequence, sequence % 7, 1 + sequence % 30))));
    if (sequence % 3 == 0) {
      ASSERT_TRUE(view.apply(removed(++event, kG1, chain(sequence, sequence % (1 + sequence % 20), 1))));
    }
  }
  for (std::uint32_t sequence = 0; sequence < 201; ++sequence) {
    const std::vector<BlockKey> keys = keys_of(chain(sequence, 0, 64));
    ResidencyView::PrefixMatch expected;
    while (view.tiers_holding(keys[expected.blocks]).any()) {
      ++expected.by_tier[view.contains(kG1, keys[expected.blocks]) ? 0 : 1];
      ++expected.blocks;
    }
    EXPECT_EQ(view.match_prefix(keys), expected) << sequence;
  }
}

// Applies an invalid event to a view at event 5 with three blocks in G1, and checks that nothing changed.
class ResidencyViewErrorTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(view_.apply(Snapshot{.sequence = 5, .tiers = {{kG1, chain(1, 0, 3)}}})); }

  template <typename Change>
  Error refused(const Change& change) {
    const Status status = view_.apply(change);
    EXPECT_FALSE(status);
    EXPECT_EQ(view_.sequence(), 5U);
    EXPECT_EQ(view_.sorted_blocks(kG1), chain(1, 0, 3));
    EXPECT_EQ(view_.size(), 3U);
    return status ? Error{} : status.error();
  }

  ResidencyView view_;
};

TEST_F(ResidencyViewErrorTest, Gap) {
  const Error error = refused(stored(8, kG1, chain(2, 0, 1)));
  EXPECT_EQ(error.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message, AllOf(HasSubstr("event 8"), HasSubstr("at event 5")));
}

TEST_F(ResidencyViewErrorTest, Repeat) {
  const Error error = refused(Event{5, kG1, Cleared{}});
  EXPECT_EQ(error.code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message, AllOf(HasSubstr("event 5 came again"), HasSubstr("at event 5")));
  EXPECT_THAT(refused(Event{2, kG1, Cleared{}}).message, AllOf(HasSubstr("event 2"), HasSubstr("at event 5")));
}

TEST_F(ResidencyViewErrorTest, StoredOfAKnownKey) {
  const Error error = refused(stored(6, kG1, {block_at(2, 0), block_at(2, 1), block_at(1, 2)}));
  EXPECT_EQ(error.code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message, AllOf(HasSubstr("event 6"), HasSubstr("at position 2"), HasSubstr("G1")));
}

TEST_F(ResidencyViewErrorTest, StoredOfOneKeyTwice) {
  EXPECT_EQ(refused(stored(6, kG1, {block_at(2, 0), block_at(2, 0)})).code, ErrorCode::kAlreadyExists);
}

TEST_F(ResidencyViewErrorTest, RemovedOfAnUnknownKey) {
  const Error error = refused(removed(6, kG1, {block_at(1, 0), block_at(1, 1), block_at(2, 2)}));
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, AllOf(HasSubstr("event 6"), HasSubstr("at position 2"), HasSubstr("G1")));
  EXPECT_EQ(refused(removed(6, kG2, chain(1, 0, 1))).code, ErrorCode::kNotFound);
}

TEST_F(ResidencyViewErrorTest, ResumedOfATierThatIsNotSuspended) {
  const Error error = refused(Event{6, kG1, Resumed{}});
  EXPECT_EQ(error.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.message, AllOf(HasSubstr("event 6"), HasSubstr("G1"), HasSubstr("not suspended")));
}

TEST_F(ResidencyViewErrorTest, SuspendedOfATierThatIsSuspended) {
  ASSERT_TRUE(
      view_.apply(Snapshot{.sequence = 5, .tiers = {{.tier = kG1, .blocks = chain(1, 0, 3), .suspended = true}}}));
  const Error error = refused(Event{6, kG1, Suspended{}});
  EXPECT_TRUE(view_.is_suspended(kG1));
  EXPECT_EQ(error.code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(error.message, AllOf(HasSubstr("event 6"), HasSubstr("G1"), HasSubstr("suspended already")));
}

TEST_F(ResidencyViewErrorTest, SnapshotThatNamesSomethingTwice) {
  const Error tier = refused(Snapshot{.sequence = 9, .tiers = {{kG2, chain(2, 0, 1)}, {kG2, {}}}});
  EXPECT_EQ(tier.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(tier.message, HasSubstr("tier G2 twice"));
  const Error block = refused(Snapshot{.sequence = 9, .tiers = {{kG2, {block_at(2, 0), block_at(2, 0)}}}});
  EXPECT_EQ(block.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(block.message, HasSubstr("twice"));
}

}  // namespace
}  // namespace cairn
