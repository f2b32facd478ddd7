#include "cairn/page/scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cairn::page {
namespace {

using ::testing::ElementsAre;

constexpr Axis::Scale kLog = Axis::Scale::kLog;

Scale make(const Axis& axis, std::initializer_list<double> values, int count = 5) {
  Extent extent;
  for (const double value : values) {
    extent.add(value, axis);
  }
  return Scale(axis, extent, 0, 100, count);
}

std::vector<std::string> labels(const Scale& scale) {
  std::vector<std::string> out;
  for (const Tick& tick : scale.ticks()) {
    std::string label = tick.label;
    if (const std::size_t at = label.find("\u00A0"); at != std::string::npos) {
      label.replace(at, 2, " ");
    }
    out.push_back(label);
  }
  return out;
}

TEST(ScaleTest, PositiveValuesBeginAtZeroAndEndAtATick) {
  const Scale scale = make({.label = "Hits"}, {3, 9.3});
  EXPECT_THAT(labels(scale), ElementsAre("0", "2", "4", "6", "8", "10"));
  EXPECT_EQ(scale.at(0), 0);
  EXPECT_EQ(scale.at(10), 100);
  EXPECT_EQ(scale.at(5), 50);
  EXPECT_EQ(scale.label(), "Hits");
}

TEST(ScaleTest, ValuesOnBothSidesOfZeroHaveItAsATick) {
  EXPECT_THAT(labels(make({}, {-4.5, 13})), ElementsAre("-5", "0", "5", "10", "15"));
  EXPECT_THAT(labels(make({}, {-7, -2})), ElementsAre("-8", "-6", "-4", "-2", "0"));
}

TEST(ScaleTest, EndsThatAreGivenStay) {
  const Scale scale = make({.from = 1, .to = 9.3}, {3});
  EXPECT_THAT(labels(scale), ElementsAre("2", "4", "6", "8"));
  EXPECT_EQ(scale.at(9.3), 100);
  EXPECT_EQ(scale.at(1), 0);
  EXPECT_EQ(scale.at(50), 100) << "values beyond the end are drawn at the end";
  EXPECT_EQ(scale.at(-50), 0);
}

TEST(ScaleTest, TheLabelNamesTheUnitOfTheTicks) {
  const Scale time = make({.label = "Time", .unit = Unit::kSeconds, .from = 0, .to = 3600}, {10, 3600});
  EXPECT_EQ(time.label(), "Time (min)");
  EXPECT_THAT(labels(time), ElementsAre("0", "10", "20", "30", "40", "50", "60"));
  EXPECT_DOUBLE_EQ(*time.at(1800), 50);
  EXPECT_THAT(labels(make({.unit = Unit::kShare, .from = 0, .to = 1}, {0.5})),
              ElementsAre("0 %", "20 %", "40 %", "60 %", "80 %", "100 %"));
}

TEST(ScaleTest, EqualValuesStillHaveALength) {
  for (const double value : {0.0, 5.0, -5.0}) {
    const Scale scale = make({}, {value});
    EXPECT_TRUE(std::isfinite(*scale.at(value)));
    EXPECT_GE(scale.ticks().size(), 2U);
  }
  EXPECT_NEAR(*make({.scale = kLog}, {100}).at(100), 50, 1e-9);
  EXPECT_NEAR(*make({.from = 7, .to = 7}, {7}).at(7), 0, 1e-9);
}

TEST(ScaleTest, LogarithmsGiveEachFactorTheSameRoom) {
  const Scale scale = make({.scale = kLog}, {1, 10'000});
  EXPECT_THAT(labels(scale), ElementsAre("1", "10", "100", "1,000", "10,000"));
  EXPECT_NEAR(*scale.at(10), 25, 1e-9);
  EXPECT_NEAR(*scale.at(100), 50, 1e-9);
  EXPECT_EQ(scale.at(0), std::nullopt);
  EXPECT_EQ(scale.at(-1), std::nullopt);
  EXPECT_THAT(labels(make({.scale = kLog}, {3, 300})), ElementsAre("5", "10", "20", "50", "100", "200"));
}

TEST(ScaleTest, LogarithmicTimesAreThoseOfClocks) {
  EXPECT_THAT(labels(make({.unit = Unit::kMilliseconds, .scale = kLog}, {0.9, 4'000'000})),
              ElementsAre("1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h"));
  EXPECT_THAT(labels(make({.unit = Unit::kSeconds, .scale = kLog}, {4, 700})),
              ElementsAre("5 s", "10 s", "20 s", "30 s", "1 min", "2 min", "5 min", "10 min"));
  EXPECT_THAT(labels(make({.unit = Unit::kSeconds, .scale = kLog}, {50'000, 4'000'000})),
              ElementsAre("1 day", "2 days", "5 days", "10 days", "20 days"));
}

TEST(ScaleTest, TicksThatAreGivenReplaceRoundOnes) {
  const Scale scale = make({.scale = kLog, .ticks = {{5, "five"}, {50, "fifty"}}}, {5, 50});
  EXPECT_THAT(labels(scale), ElementsAre("five", "fifty"));
}

TEST(ScaleTest, WhatCannotBeShownIsPassedOver) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Extent extent;
  extent.add(nan, {});
  extent.add(-1, {.scale = kLog});
  EXPECT_TRUE(extent.empty());
  const Scale scale = make({}, {nan, 3, std::numeric_limits<double>::infinity(), 9});
  EXPECT_EQ(scale.at(nan), std::nullopt);
  EXPECT_EQ(scale.at(10), 100);
}

TEST(ScaleTest, LinearTicksAreFewRoundAndCoverTheDataWhateverItsSize) {
  for (int power = -6; power <= 12; ++power) {
    for (double lead = 1; lead < 10; lead += 0.37) {
      const double value = lead * std::pow(10, power);
      const Scale scale = make({}, {value});
      EXPECT_GE(scale.ticks().size(), 3U) << value;
      EXPECT_LE(scale.ticks().size(), 9U) << value;
      EXPECT_GE(scale.ticks().back().at, value * (1 - 1e-8)) << value;
      EXPECT_LT(*scale.at(value / 2), 100) << value;
    }
  }
}

TEST(RoundStepTest, IsOneTwoOrFiveTimesAPowerOfTen) {
  EXPECT_DOUBLE_EQ(round_step(10, 10), 1);
  EXPECT_DOUBLE_EQ(round_step(10, 5), 2);
  EXPECT_DOUBLE_EQ(round_step(0.7, 5), 0.2);
  EXPECT_DOUBLE_EQ(round_step(4000, 5), 1000);
}

}  // namespace
}  // namespace cairn::page
