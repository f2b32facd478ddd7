// Priorities, time to live, and what becomes of blocks when the last handle is released.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

class PriorityTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(PriorityTest, HigherOnesAreKeptLonger) {
  const auto pool = make_pool(6, {.policy = GetParam()});
  const Keys high = chain(1, 2);
  const Keys middle = chain(2, 2);
  const Keys low = chain(3, 2);
  cache(*pool, high, {.priority = 80});
  cache(*pool, middle);
  cache(*pool, low, {.priority = 0});
  EXPECT_THAT(evicted_for(*pool, 6), ElementsAreArray(joined(joined(reversed(low), reversed(middle)), reversed(high))));
}

TEST_P(PriorityTest, IsRaisedByALateCopyAndNeverLowered) {
  const auto pool = make_pool(4, {.policy = GetParam()});
  const Keys raised = chain(1, 1);
  const Keys lowered = chain(2, 1);
  const Keys between = chain(3, 1);
  cache(*pool, raised, {.priority = 10});
  cache(*pool, lowered, {.priority = 90});
  cache(*pool, between, {.priority = 50});
  cache(*pool, raised, {.priority = 70});
  cache(*pool, lowered, {.priority = 0});
  EXPECT_THAT(evicted_for(*pool, 4), ElementsAre(between[0], raised[0], lowered[0]));
}

TEST_P(PriorityTest, CanBeSetAnewWhileBlocksAreHeld) {
  const auto pool = make_pool(2, {.policy = GetParam()});
  const Keys a = chain(1, 1);
  const Keys b = chain(2, 1);
  cache(*pool, b);
  {
    ImmutableBlocks held = store(*pool, a, {.priority = 100});
    ASSERT_TRUE(held.set_retention({.priority = 1}));
  }
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(a[0], b[0]));
}

INSTANTIATE_TEST_SUITE_P(Policies, PriorityTest, ::testing::ValuesIn(kAllPolicies));

TEST(RetentionTest, OfThePoolIsForBlocksWithoutOneOfTheirOwn) {
  const auto pool = make_pool(2, {.policy = PolicyKind::kLru, .retention = {.priority = 60}});
  const Keys own = chain(1, 1);
  const Keys pools = chain(2, 1);
  {
    const ImmutableBlocks held = *completed(*pool, pools).register_blocks();
  }
  cache(*pool, own, {.priority = 59});
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(own[0], pools[0]));
}

TEST(RetentionTest, APoolThatCannotKeepItSaysSo) {
  const auto error = [](const Retention& retention) {
    return BlockPool::create({.capacity = 1, .block_size = 1, .retention = retention}).error();
  };
  expect_error(error({.priority = 101}), ErrorCode::kInvalidArgument, "priority 101 is beyond 100");
  expect_error(error({.time_to_live = seconds(1)}), ErrorCode::kFailedPrecondition, "the pool keeps no time");
}

TEST(RetentionTest, ThatCannotBeKeptChangesNothing) {
  const auto pool = make_pool(2, {.time_to_live = true});
  const auto timeless = make_pool(2);
  ImmutableBlocks held = store(*pool, chain(1, 2), {.priority = 7});
  expect_error(held.set_retention({.priority = 200}).error(), ErrorCode::kInvalidArgument, "priority 200");
  expect_error(held.set_retention({.time_to_live = seconds(0)}).error(), ErrorCode::kInvalidArgument, "of 0 ns");
  expect_error(held.set_retention({.time_to_live = seconds(-1)}).error(), ErrorCode::kInvalidArgument, "-1000000000");
  ImmutableBlocks elsewhere = store(*timeless, chain(1, 2));
  expect_error(elsewhere.set_retention({.time_to_live = seconds(1)}).error(), ErrorCode::kFailedPrecondition,
               "create it with time_to_live");
  EXPECT_TRUE(ImmutableBlocks().set_retention({.priority = 200}));  // of no blocks
}

TEST_P(PriorityTest, LastsForItsTimeAndIsTheDefaultThen) {
  ManualClock clock;
  const auto pool = make_pool(4, {.policy = GetParam(), .time_to_live = true, .clock = &clock});
  const Keys lasting = chain(1, 1);
  const Keys ending = chain(2, 1);
  const Keys plain = chain(3, 1);
  cache(*pool, lasting, {.priority = 90, .priority_duration = seconds(11)});
  cache(*pool, ending, {.priority = 90, .priority_duration = seconds(10)});
  cache(*pool, plain);
  clock.advance(seconds(10));
  // Both have the same priority now: the older one is evicted first.
  EXPECT_THAT(evicted_for(*pool, 4), ElementsAre(ending[0], plain[0], lasting[0]));
}

TEST(PriorityDurationTest, BeginsAnewWithEveryUse) {
  ManualClock clock;
  const auto pool = make_pool(2, {.policy = PolicyKind::kLru, .time_to_live = true, .clock = &clock});
  const Keys high = chain(1, 1);
  const Keys plain = chain(2, 1);
  cache(*pool, high, {.priority = 90, .priority_duration = seconds(10)});
  clock.advance(seconds(9));
  EXPECT_EQ(pool->match_prefix(high).size(), 1U);
  cache(*pool, plain);
  clock.advance(seconds(9));
  EXPECT_THAT(evicted_for(*pool, 1), ElementsAre(plain[0]));
}

TEST(PriorityDurationTest, ALowOneEndsToo) {
  ManualClock clock;
  const auto pool = make_pool(2, {.policy = PolicyKind::kLru, .time_to_live = true, .clock = &clock});
  const Keys older = chain(1, 1);
  const Keys low = chain(2, 1);
  cache(*pool, older);
  cache(*pool, low, {.priority = 1, .priority_duration = seconds(5)});
  clock.advance(seconds(5));
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(older[0], low[0]));
}

TEST(PriorityDurationTest, DoesNotRunWhileABlockIsInUse) {
  ManualClock clock;
  const auto pool = make_pool(2, {.policy = PolicyKind::kLru, .time_to_live = true, .clock = &clock});
  const Keys high = chain(1, 1);
  const Keys plain = chain(2, 1);
  {
    const ImmutableBlocks held = store(*pool, high, {.priority = 90, .priority_duration = seconds(1)});
    clock.advance(seconds(60));
  }
  cache(*pool, plain);
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(plain[0], high[0]));
}

TEST(PriorityDurationTest, ALateCopyMayMakeItLast) {
  ManualClock clock;
  const auto pool = make_pool(3, {.policy = PolicyKind::kLru, .time_to_live = true, .clock = &clock});
  const Keys lasting = chain(1, 1);
  const Keys ending = chain(2, 1);
  cache(*pool, lasting, {.priority = 90, .priority_duration = seconds(1)});
  cache(*pool, lasting, {.priority = 90});
  cache(*pool, ending, {.priority = 90});
  cache(*pool, ending, {.priority = 80, .priority_duration = seconds(1)});  // neither raises nor shortens
  clock.advance(seconds(60));
  const Keys plain = chain(3, 1);
  cache(*pool, plain);
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAre(plain[0], lasting[0], ending[0]));
}

TEST(PriorityDurationTest, ThatCannotBeKeptIsRefused) {
  const auto timeless = make_pool(1);
  ImmutableBlocks held = store(*timeless, chain(1, 1));
  expect_error(held.set_retention({.priority = 9, .priority_duration = seconds(1)}).error(),
               ErrorCode::kFailedPrecondition, "given a priority for a time, but the pool keeps no time");
  const auto pool = make_pool(1, {.time_to_live = true});
  ImmutableBlocks timed = store(*pool, chain(1, 1));
  expect_error(timed.set_retention({.priority_duration = seconds(0)}).error(), ErrorCode::kInvalidArgument,
               "a priority for 0 ns is none");
}

class TimeToLiveTest : public ::testing::Test {
 protected:
  std::unique_ptr<BlockPool> make(std::uint32_t capacity, BlockPoolOptions options = {}) {
    options.time_to_live = true;
    options.clock = &clock_;
    options.observers = {&observer_};
    return make_pool(capacity, options);
  }

  ManualClock clock_;
  RecordingObserver observer_;
  const Keys keys_ = chain(1, 3);
};

TEST_F(TimeToLiveTest, ABlockIsGoneOnceItHasLainUnusedForThatLong) {
  const auto pool = make(4);
  cache(*pool, keys_, {.time_to_live = milliseconds(10)});
  clock_.advance(milliseconds(10) - std::chrono::nanoseconds(1));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
  clock_.advance(std::chrono::nanoseconds(1));
  EXPECT_FALSE(pool->contains(keys_[0]));
  EXPECT_EQ(pool->count_prefix(keys_), 0U);
  EXPECT_TRUE(pool->match_prefix(keys_).empty());
  EXPECT_TRUE(pool->scan(keys_).empty());
  EXPECT_THAT(resident_keys(*pool), IsEmpty());
  EXPECT_EQ(pool->counts(), (PoolCounts{.total = 4, .free = 4}));
  EXPECT_EQ(pool->stats().expired, 3U);
  EXPECT_EQ(pool->stats().evicted, 0U);
  pool->check_invariants();
}

TEST_F(TimeToLiveTest, ItsEndIsReportedAsARemoval) {
  const auto pool = make(4);
  cache(*pool, keys_, {.time_to_live = milliseconds(10)});
  (void)observer_.take();
  clock_.advance(milliseconds(10));
  (void)pool->counts();
  const std::vector<ObserverCall> calls = observer_.take();
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].what, ObserverCall::What::kRemoved);
  EXPECT_THAT(calls[0].keys, UnorderedElementsAreArray(keys_));
}

TEST_F(TimeToLiveTest, ABlockInUseIsNotGoneHoweverOldItIs) {
  const auto pool = make(4);
  ImmutableBlocks held = store(*pool, keys_, {.time_to_live = milliseconds(10)});
  clock_.advance(seconds(3600));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
  held = {};
  clock_.advance(milliseconds(9));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
}

TEST_F(TimeToLiveTest, UsingABlockStartsItAnew) {
  const auto pool = make(4);
  cache(*pool, keys_, {.time_to_live = milliseconds(10)});
  clock_.advance(milliseconds(9));
  EXPECT_EQ(pool->match_prefix(first_of(keys_, 1)).size(), 1U);
  clock_.advance(milliseconds(9));
  EXPECT_TRUE(pool->contains(keys_[0]));
  EXPECT_FALSE(pool->contains(keys_[1]));
  clock_.advance(milliseconds(1));
  EXPECT_FALSE(pool->contains(keys_[0]));
}

TEST_F(TimeToLiveTest, LookingDoesNotStartItAnew) {
  const auto pool = make(4);
  cache(*pool, keys_, {.time_to_live = milliseconds(10)});
  clock_.advance(milliseconds(9));
  EXPECT_TRUE(pool->contains(keys_[0]));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
  clock_.advance(milliseconds(1));
  EXPECT_FALSE(pool->contains(keys_[0]));
}

TEST_F(TimeToLiveTest, BlocksWithoutATimeToLiveDoNotExpire) {
  const auto pool = make(4);
  cache(*pool, keys_);
  clock_.advance(seconds(1'000'000));
  EXPECT_EQ(pool->count_prefix(keys_), 3U);
}

TEST_F(TimeToLiveTest, IsRoundedUpToMilliseconds) {
  const auto pool = make(4);
  cache(*pool, keys_, {.time_to_live = microseconds(1)});
  clock_.advance(microseconds(999));
  EXPECT_TRUE(pool->contains(keys_[0]));
  clock_.advance(microseconds(1));
  EXPECT_FALSE(pool->contains(keys_[0]));
}

TEST_F(TimeToLiveTest, ExpiredBlocksMakeRoomBeforeAnythingIsEvicted) {
  const auto pool = make(4, {.policy = PolicyKind::kLru});
  const Keys older = chain(2, 1);
  cache(*pool, older, {.priority = 0});
  cache(*pool, keys_, {.priority = 100, .time_to_live = milliseconds(10)});
  clock_.advance(milliseconds(10));
  EXPECT_THAT(evicted_for(*pool, 3), IsEmpty());
  EXPECT_TRUE(pool->contains(older[0]));
}

TEST_F(TimeToLiveTest, AnExpiredBlockIsNotFoundByARegistrationEither) {
  const auto pool = make(2, {.policy = PolicyKind::kLru});
  const Keys key = chain(1, 1);
  cache(*pool, key, {.time_to_live = milliseconds(10)});
  CompleteBlocks again = completed(*pool, key);
  (void)observer_.take();
  clock_.advance(milliseconds(10));
  const BlockId block_id = again.block_ids()[0];
  const ImmutableBlocks held = *std::move(again).register_blocks();
  EXPECT_EQ(held.block_ids()[0], block_id);
  EXPECT_EQ(pool->stats().deduplicated, 0U);
  EXPECT_THAT(observer_.take(), ElementsAre(removed(key), registered(key)));
}

TEST_F(TimeToLiveTest, ExpiredBlocksCountForNoTenant) {
  const auto pool = make(2);
  cache(*pool, chain(1, 1), {.time_to_live = milliseconds(10)});
  clock_.advance(milliseconds(10));
  EXPECT_EQ(pool->usage(kDefaultTenant)->used, 0U);
}

TEST_F(TimeToLiveTest, ExpiredBlocksAreInTheStatistics) {
  const auto pool = make(2);
  cache(*pool, chain(1, 1), {.time_to_live = milliseconds(10)});
  clock_.advance(milliseconds(10));
  EXPECT_EQ(pool->stats().expired, 1U);
}

}  // namespace
}  // namespace cairn::testing
