#include "cairn/tier/link_meter.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

LinkMeter::Submitted of(std::uint64_t blocks, std::uint64_t block_bytes, TimePoint at) {
  return {.blocks = blocks, .block_bytes = block_bytes, .at = at};
}

TEST(LinkMeterTest, MeasuresTheSpeedOfWhatArrived) {
  LinkMeter meter;
  EXPECT_EQ(meter.bytes_per_second(), 0);
  EXPECT_EQ(meter.estimate(seconds(0)).bytes_per_second, 0);
  meter.began(of(4, 100, seconds(0)));
  EXPECT_EQ(meter.totals().bytes_in_flight, 400U);
  meter.ended(of(4, 100, seconds(0)), {.done = 3, .failed = 1}, {}, seconds(2));
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
  meter.began(of(1, 100, seconds(0)));
  meter.began(of(1, 100, seconds(0)));
  meter.ended(of(1, 100, seconds(0)), {.done = 1}, {}, seconds(1));
  EXPECT_EQ(meter.estimate(seconds(1)).bytes_in_flight, 100U);
  meter.ended(of(1, 100, seconds(0)), {.done = 1}, {}, seconds(2));
  EXPECT_EQ(meter.bytes_per_second(), 100);
  EXPECT_EQ(meter.totals().busy, seconds(2));
}

TEST(LinkMeterTest, WhatWasRefusedOrOnlyWaitedTellsNothingOfTheSpeed) {
  LinkMeter meter;
  meter.began(of(1, 100, seconds(0)));
  meter.began(of(1, 100, seconds(1)));
  meter.began(of(1, 100, seconds(9)));
  meter.refused(of(1, 100, seconds(9)), seconds(9));
  meter.ended(of(1, 100, seconds(1)), {.cancelled = 1}, {}, seconds(9));
  meter.ended(of(1, 100, seconds(0)), {.done = 1}, {}, seconds(10));
  EXPECT_EQ(meter.bytes_per_second(), 10);
  EXPECT_EQ(meter.totals().copies, 2U);
  EXPECT_EQ(meter.totals().bytes_in_flight, 0U);
  EXPECT_EQ(meter.totals().busy, seconds(10));
}

TEST(LinkMeterTest, FollowsAChangeOfSpeed) {
  LinkMeter meter;
  for (int second = 0; second < 50; ++second) {
    meter.began(of(1, second < 10 ? 1000 : 100, seconds(second)));
    meter.ended(of(1, second < 10 ? 1000 : 100, seconds(second)), {.done = 1}, {}, seconds(second + 1));
  }
  EXPECT_NEAR(meter.bytes_per_second(), 100, 1);
}

TEST(LinkMeterTest, SmallTransfersCountForTheirBytes) {
  LinkMeter meter;
  const auto transfer = [&meter](std::uint64_t bytes, TimePoint began, Duration took) {
    meter.began(of(1, bytes, began));
    meter.ended(of(1, bytes, began), {.done = 1}, {}, began + took);
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
      meter.began(of(1, 100, begin));
    }
    for (int i = 0; i < 4; ++i) {
      meter.ended(of(1, 100, begin), {.done = 1}, {}, begin + milliseconds(40));
    }
    EXPECT_NEAR(meter.bytes_per_second(), 10'000, 1);
  }
}

TEST(LinkMeterTest, AnOldMeasurementCountsLittle) {
  LinkMeter meter;
  meter.began(of(1, 1000, seconds(0)));
  meter.ended(of(1, 1000, seconds(0)), {.done = 1}, {}, seconds(1));
  const TimePoint later = std::chrono::hours(1);
  EXPECT_EQ(meter.estimate(later).bytes_per_second, 1000);
  EXPECT_EQ(meter.estimate(later).age, later - seconds(1));
  meter.began(of(1, 100, later));
  meter.ended(of(1, 100, later), {.done = 1}, {}, later + seconds(1));
  EXPECT_NEAR(meter.bytes_per_second(), 100, 1);
}

TEST(LinkMeterTest, WhatIsOverdueMakesTheLinkSlower) {
  LinkMeter meter;
  meter.began(of(1, 1000, seconds(0)));
  meter.ended(of(1, 1000, seconds(0)), {.done = 1}, {}, seconds(1));
  meter.began(of(1, 1000, seconds(10)));
  EXPECT_EQ(meter.estimate(seconds(11)).bytes_per_second, 1000);
  EXPECT_EQ(meter.estimate(seconds(20)).bytes_per_second, 100);
  EXPECT_EQ(meter.bytes_per_second(), 1000) << "as it was measured";
}

// Ranks hold copies back until their engine has reached a step, and say how long the copy itself took.
TEST(LinkMeterTest, TimeThatATransferIsHeldBackIsNotTheLinks) {
  LinkMeter meter;
  const auto held = [](TimePoint at) {
    return LinkMeter::Submitted{.blocks = 1, .block_bytes = 1000, .at = at, .may_be_held = true};
  };
  meter.began(held(seconds(0)));
  meter.began(held(seconds(5)));
  meter.ended(held(seconds(0)), {.done = 1}, seconds(1), seconds(31));
  EXPECT_EQ(meter.bytes_per_second(), 1000);
  // The second one began with the first one, and was copied after it.
  meter.ended(held(seconds(5)), {.done = 1}, seconds(2), seconds(32));
  EXPECT_NEAR(meter.bytes_per_second(), 1000, 1e-6);
  meter.began(held(seconds(40)));
  EXPECT_NEAR(meter.estimate(seconds(90)).bytes_per_second, 1000, 1e-6) << "it may wait for its step";
  meter.began(of(1, 1000, seconds(90)));
  EXPECT_LT(meter.estimate(seconds(100)).bytes_per_second, 250) << "nothing holds this one back";
  meter.ended(of(1, 1000, seconds(90)), {.done = 1}, {}, seconds(91));
  EXPECT_NEAR(meter.estimate(seconds(99)).bytes_per_second, 1000, 1e-6);
  // No rank can say that a copy took longer than it was in flight.
  meter.ended(held(seconds(40)), {.done = 1}, Duration::max(), seconds(92));
  EXPECT_NEAR(meter.bytes_per_second(), 1000, 1e-6);
}

TEST(LinkMeterTest, ATransferThatTakesNoTimeIsFast) {
  LinkMeter meter;
  meter.began(of(1, 1000, seconds(1)));
  meter.ended(of(1, 1000, seconds(1)), {.done = 1}, {}, seconds(1));
  EXPECT_GT(meter.bytes_per_second(), 1e11);
}

TEST(LinkMeterTest, CountsWhatBecameOfBlocks) {
  LinkMeter meter;
  meter.began(of(4, 100, seconds(0)));
  meter.quarantined(2);
  meter.ended(of(4, 100, seconds(0)), {.mismatched = 1, .expired = 2, .cancelled = 1}, {}, seconds(1));
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
