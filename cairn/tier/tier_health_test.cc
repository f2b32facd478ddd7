#include "cairn/tier/tier_health.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using std::chrono::seconds;
using Change = TierHealth::Change;

TierHealth make() { return TierHealth({.failures = 3, .first_wait = seconds(1), .longest_wait = seconds(3)}); }

void take_out(TierHealth& health, TimePoint now) {
  EXPECT_EQ(health.failed("broken", now), Change::kNone);
  EXPECT_EQ(health.failed("broken", now), Change::kNone);
  EXPECT_EQ(health.failed("broken", now), Change::kOut);
}

TEST(TierHealthTest, FailuresInARowTakeItOut) {
  TierHealth health = make();
  EXPECT_EQ(health.failed("once", seconds(1)), Change::kNone);
  EXPECT_EQ(health.succeeded(), Change::kNone);
  take_out(health, seconds(2));
  EXPECT_FALSE(health.is_up());
  EXPECT_FALSE(health.may_use(seconds(2)));
  EXPECT_FALSE(health.may_be_tried(seconds(2)));
  const TierHealth::Report report = health.report();
  EXPECT_EQ(report.failures, 4U);
  EXPECT_EQ(report.times_out, 1U);
  EXPECT_EQ(report.out_since, TimePoint(seconds(2)));
  EXPECT_EQ(report.next_trial, TimePoint(seconds(3)));
  EXPECT_EQ(report.reason, "broken");
}

TEST(TierHealthTest, OneTrialAfterTheWait) {
  TierHealth health = make();
  EXPECT_TRUE(health.may_be_tried(seconds(0)));
  take_out(health, seconds(0));
  EXPECT_FALSE(health.may_be_tried(seconds(1) - TimePoint(1)));
  EXPECT_TRUE(health.may_be_tried(seconds(1)));
  EXPECT_TRUE(health.may_be_tried(seconds(1)));  // may_be_tried() begins no trial
  EXPECT_TRUE(health.may_use(seconds(1)));
  EXPECT_FALSE(health.may_use(seconds(1)));  // there is one trial
  EXPECT_TRUE(health.may_be_tried(seconds(1)));
  EXPECT_FALSE(health.is_up());
  EXPECT_EQ(health.succeeded(), Change::kBack);
  EXPECT_TRUE(health.may_use(seconds(1)));
  EXPECT_TRUE(health.may_be_tried(seconds(0)));
  EXPECT_EQ(health.report().out_since, std::nullopt);
}

TEST(TierHealthTest, FailedTrialsWaitTwiceAsLongUpToTheLongest) {
  TierHealth health = make();
  take_out(health, seconds(0));
  for (const int wait : {1, 2, 3, 3}) {
    const TimePoint before = *health.report().next_trial;
    EXPECT_FALSE(health.may_use(before - TimePoint(1)));
    ASSERT_TRUE(health.may_use(before));
    EXPECT_EQ(health.failed("still", before), Change::kNone);
    EXPECT_EQ(*health.report().next_trial - before, TimePoint(seconds(wait == 3 ? 3 : 2 * wait > 3 ? 3 : 2 * wait)));
  }
}

TEST(TierHealthTest, LateFailuresOfCopiesInFlightDoNotLengthenTheWait) {
  TierHealth health = make();
  take_out(health, seconds(0));
  EXPECT_EQ(health.failed("late", seconds(0)), Change::kNone);
  EXPECT_EQ(health.report().next_trial, TimePoint(seconds(1)));
}

TEST(TierHealthTest, ATrialThatCameToNothingLeavesItToTheNext) {
  TierHealth health = make();
  take_out(health, seconds(0));
  ASSERT_TRUE(health.may_use(seconds(1)));
  health.not_tried();
  EXPECT_TRUE(health.may_use(seconds(1)));
}

TEST(TierHealthTest, CopiesOfNothingButWrongBytesTakeItOut) {
  TierHealth health = make();
  EXPECT_EQ(health.verified(0, 1, "garbage", seconds(0)), Change::kNone);
  EXPECT_EQ(health.verified(0, 5, "garbage", seconds(0)), Change::kNone);
  EXPECT_EQ(health.verified(0, 1, "garbage", seconds(1)), Change::kOut);
  EXPECT_EQ(health.report().reason, "garbage");
  EXPECT_EQ(health.report().failures, 3U);
  // The trial: wrong bytes lengthen the wait, right bytes end it.
  ASSERT_TRUE(health.may_use(seconds(2)));
  EXPECT_EQ(health.verified(3, 1, "garbage", seconds(2)), Change::kNone);
  EXPECT_EQ(health.report().next_trial, TimePoint(seconds(4)));
  ASSERT_TRUE(health.may_use(seconds(4)));
  EXPECT_EQ(health.verified(4, 1, "garbage", seconds(4)), Change::kBack);
  EXPECT_TRUE(health.is_up());
  // Reads from before the suspension no longer count.
  EXPECT_EQ(health.verified(0, 1, "garbage", seconds(5)), Change::kNone);
}

TEST(TierHealthTest, OneBadBlockNeverTakesItOut) {
  TierHealth strict({.failures = 1, .first_wait = seconds(1), .longest_wait = seconds(3)});
  EXPECT_EQ(strict.verified(0, 1, "a bit", seconds(0)), Change::kNone);
  TierHealth health = make();
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_EQ(health.verified(60, 4, "some bits", seconds(0)), Change::kNone);
    EXPECT_EQ(health.verified(0, 1, "a bit", seconds(0)), Change::kNone);
    EXPECT_EQ(health.verified(1, 0, "", seconds(0)), Change::kNone);
  }
}

TEST(TierHealthTest, AQuarterOfTheBlocksOfLateIsTooMany) {
  TierHealth health = make();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(health.verified(64, 0, "", seconds(0)), Change::kNone);
  }
  int copies = 1;
  while (health.verified(4, 4, "half of it is garbage", seconds(0)) == Change::kNone) {
    ASSERT_LT(++copies, 50);
  }
  EXPECT_GE(copies, 4) << "16 wrong blocks at least";
  EXPECT_FALSE(health.is_up());
}

TEST(TierHealthTest, ComesBackWithAShortWaitForTheNextTime) {
  TierHealth health = make();
  take_out(health, seconds(0));
  ASSERT_TRUE(health.may_use(seconds(1)));
  (void)health.failed("still", seconds(1));
  ASSERT_TRUE(health.may_use(seconds(3)));
  EXPECT_EQ(health.succeeded(), Change::kBack);
  take_out(health, seconds(10));
  EXPECT_EQ(health.report().next_trial, TimePoint(seconds(11)));
}

}  // namespace
}  // namespace cairn
