#include "cairn/tier/link_meter.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using std::chrono::seconds;

TEST(LinkMeterTest, MeasuresTheSpeedOfWhatArrived) {
  LinkMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  EXPECT_EQ(meter.time_for(1000), Duration::zero());
  meter.began(4, 400, seconds(0));
  EXPECT_EQ(meter.totals().bytes_in_flight, 400U);
  meter.ended({.done = 3, .failed = 1}, 4, 100, seconds(0), seconds(2));
  EXPECT_EQ(meter.bytes_per_second(), 150);
  EXPECT_EQ(meter.time_for(300), seconds(2));
  const LinkTotals totals = meter.totals();
  EXPECT_EQ(totals.copies, 1U);
  EXPECT_EQ(totals.blocks, 3U);
  EXPECT_EQ(totals.bytes, 300U);
  EXPECT_EQ(totals.failed, 1U);
  EXPECT_EQ(totals.busy, seconds(2));
  EXPECT_EQ(totals.blocks_in_flight, 0U);
  EXPECT_EQ(totals.unsettled, 1U);
  meter.settled();
  EXPECT_EQ(meter.totals().unsettled, 0U);
}

TEST(LinkMeterTest, CopiesThatOverlapAreMeasuredOneAfterTheOther) {
  LinkMeter meter;
  meter.began(1, 100, seconds(0));
  meter.began(1, 100, seconds(0));
  meter.ended({.done = 1}, 1, 100, seconds(0), seconds(1));
  EXPECT_EQ(meter.time_for(100), seconds(2));  // behind the one that is under way
  meter.ended({.done = 1}, 1, 100, seconds(0), seconds(2));
  EXPECT_EQ(meter.bytes_per_second(), 100);
  EXPECT_EQ(meter.totals().busy, seconds(2));
}

TEST(LinkMeterTest, WhatWasRefusedOrOnlyWaitedTellsNothingOfTheSpeed) {
  LinkMeter meter;
  meter.began(1, 100, seconds(0));
  meter.began(1, 100, seconds(1));
  meter.began(1, 100, seconds(9));
  meter.refused(1, 100, seconds(9));
  meter.ended({.cancelled = 1}, 1, 100, seconds(1), seconds(9));
  meter.ended({.done = 1}, 1, 100, seconds(0), seconds(10));
  EXPECT_EQ(meter.bytes_per_second(), 10);
  EXPECT_EQ(meter.totals().copies, 2U);
  EXPECT_EQ(meter.totals().bytes_in_flight, 0U);
  EXPECT_EQ(meter.totals().busy, seconds(10));
}

TEST(LinkMeterTest, FollowsAChangeOfSpeed) {
  LinkMeter meter;
  for (int second = 0; second < 50; ++second) {
    meter.began(1, 100, seconds(second));
    meter.ended({.done = 1}, 1, second < 10 ? 1000 : 100, seconds(second), seconds(second + 1));
  }
  EXPECT_NEAR(meter.bytes_per_second(), 100, 1);
}

TEST(LinkMeterTest, CountsWhatBecameOfBlocks) {
  LinkMeter meter;
  meter.began(4, 400, seconds(0));
  meter.quarantined(2);
  meter.ended({.mismatched = 1, .expired = 2, .cancelled = 1}, 4, 100, seconds(0), seconds(1));
  EXPECT_EQ(meter.bytes_per_second(), 0);
  EXPECT_EQ(meter.totals().mismatched, 1U);
  EXPECT_EQ(meter.totals().expired, 2U);
  EXPECT_EQ(meter.totals().cancelled, 1U);
  EXPECT_EQ(meter.totals().quarantined, 2U);
  meter.quarantined(-2);
  EXPECT_EQ(meter.totals().quarantined, 0U);
}

}  // namespace
}  // namespace cairn
