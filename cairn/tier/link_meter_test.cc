#include "cairn/tier/link_meter.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LinkMeterTest, MeasuresTheSpeedOfWhatArrived) {
  LinkMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  EXPECT_EQ(meter.estimate(seconds(0)).bytes_per_second, 0);
  meter.began(4, 400, seconds(0));
  EXPECT_EQ(meter.totals().bytes_in_flight, 400U);
  meter.ended({.done = 3, .failed = 1}, 4, 100, seconds(0), seconds(2));
  EXPECT_EQ(meter.bytes_per_second(), 150);
  EXPECT_EQ(meter.estimate(seconds(7)).bytes_per_second, 150);
  EXPECT_EQ(meter.estimate(seconds(7)).age, seconds(5));
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
  EXPECT_EQ(meter.estimate(seconds(1)).bytes_in_flight, 100U);
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

TEST(LinkMeterTest, SmallTransfersCountForTheirBytes) {
  LinkMeter meter;
  const auto transfer = [&meter](std::uint64_t bytes, TimePoint began, Duration took) {
    meter.began(1, bytes, began);
    meter.ended({.done = 1}, 1, bytes, began, began + took);
  };
  transfer(1'000'000, seconds(0), seconds(1));
  transfer(1000, seconds(1), milliseconds(10));  // a tenth of the speed: it has a latency
  EXPECT_NEAR(meter.bytes_per_second(), 990'000, 10'000);
}

TEST(LinkMeterTest, TransfersThatEndTogetherAreMeasuredTogether) {
  LinkMeter meter;
  for (int round = 0; round < 3; ++round) {
    const TimePoint begin = seconds(round);
    for (int i = 0; i < 4; ++i) {
      meter.began(1, 100, begin);
    }
    for (int i = 0; i < 4; ++i) {
      meter.ended({.done = 1}, 1, 100, begin, begin + milliseconds(40));
    }
    EXPECT_NEAR(meter.bytes_per_second(), 10'000, 1);
  }
}

TEST(LinkMeterTest, AnOldMeasurementCountsLittle) {
  LinkMeter meter;
  meter.began(1, 1000, seconds(0));
  meter.ended({.done = 1}, 1, 1000, seconds(0), seconds(1));
  const TimePoint later = std::chrono::hours(1);
  EXPECT_EQ(meter.estimate(later).bytes_per_second, 1000);
  EXPECT_EQ(meter.estimate(later).age, later - seconds(1));
  meter.began(1, 100, later);
  meter.ended({.done = 1}, 1, 100, later, later + seconds(1));
  EXPECT_NEAR(meter.bytes_per_second(), 100, 1);
}

TEST(LinkMeterTest, WhatIsOverdueMakesTheLinkSlower) {
  LinkMeter meter;
  meter.began(1, 1000, seconds(0));
  meter.ended({.done = 1}, 1, 1000, seconds(0), seconds(1));
  meter.began(1, 1000, seconds(10));
  EXPECT_EQ(meter.estimate(seconds(11)).bytes_per_second, 1000);
  EXPECT_EQ(meter.estimate(seconds(20)).bytes_per_second, 100);
  EXPECT_EQ(meter.bytes_per_second(), 1000) << "as it was measured";
}

TEST(LinkMeterTest, ATransferThatTakesNoTimeIsFast) {
  LinkMeter meter;
  meter.began(1, 1000, seconds(1));
  meter.ended({.done = 1}, 1, 1000, seconds(1), seconds(1));
  EXPECT_GT(meter.bytes_per_second(), 1e11);
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
