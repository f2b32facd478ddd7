#include "cairn/sim/report.h"

#include <gtest/gtest.h>

#include "cairn/sim/time_series.h"

namespace cairn::sim {
namespace {

TEST(DistributionTest, WithoutValuesAllIsZero) { EXPECT_EQ(Distribution::of({}).max, 0); }

TEST(DistributionTest, PercentilesAreValuesAtRoundedRanks) {
  const Distribution d = Distribution::of({4, 1, 3, 2});
  EXPECT_EQ(d.count, 4U);
  EXPECT_EQ(d.mean, 2.5);
  EXPECT_EQ(d.min, 1);
  EXPECT_EQ(d.max, 4);
  EXPECT_EQ(d.median, 3) << "rank round(3 * 0.5) = 2";
  EXPECT_EQ(d.p75, 3) << "rank round(2.25) = 2";
  EXPECT_EQ(d.p90, 4) << "rank round(2.7) = 3";
  EXPECT_DOUBLE_EQ(d.std * d.std, 1.25);
}

TEST(DistributionTest, CountedValuesEqualRepeatedValues) {
  const Distribution counted = Distribution::of_counted({{5, 3}, {1, 2}, {9, 5}});
  const Distribution written = Distribution::of({1, 1, 5, 5, 5, 9, 9, 9, 9, 9});
  EXPECT_EQ(counted.count, written.count);
  EXPECT_EQ(counted.mean, written.mean);
  EXPECT_EQ(counted.median, written.median);
  EXPECT_EQ(counted.p75, written.p75);
  EXPECT_DOUBLE_EQ(counted.std, written.std);
}

TEST(TimeSeriesTest, IntervalsAreMergedWithoutLoss) {
  TimeSeries series;
  for (std::int64_t second = 0; second < 1'000; ++second) {
    ++series.at(std::chrono::seconds(second)).first_tokens;
  }
  EXPECT_EQ(series.width(), std::chrono::seconds(8));
  EXPECT_EQ(series.spans().size(), 125U);
  for (const TimeSpan& span : series.spans()) {
    EXPECT_EQ(span.first_tokens, 8U);
  }
}

}  // namespace
}  // namespace cairn::sim
