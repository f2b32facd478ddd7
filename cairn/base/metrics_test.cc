#include "cairn/base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "cairn/base/mutex.h"

namespace cairn {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(MetricsTest, CountersAndGaugesKeepWhatIsRecorded) {
  Metrics metrics;
  Counter& hits = metrics.counter("cairn_hits_total", "Blocks found");
  hits.add();
  hits.add(41);
  EXPECT_EQ(hits.value(), 42U);
  Gauge& queued = metrics.gauge("cairn_queued", "Blocks that wait");
  queued.set(5);
  queued.add(-7);
  EXPECT_EQ(queued.value(), -2);
}

TEST(MetricsTest, TheSameNameAndLabelsAreTheSameFigure) {
  Metrics metrics;
  Counter& first = metrics.counter("cairn_hits_total", "Blocks found", {{"tier", "G2"}, {"link", "G1-G2"}});
  Counter& reordered = metrics.counter("cairn_hits_total", "", {{"link", "G1-G2"}, {"tier", "G2"}});
  Counter& other = metrics.counter("cairn_hits_total", "", {{"tier", "G3"}, {"link", "G1-G2"}});
  EXPECT_EQ(&first, &reordered);
  EXPECT_NE(&first, &other);
  EXPECT_EQ(&metrics.gauge("cairn_free", ""), &metrics.gauge("cairn_free", ""));
  EXPECT_EQ(&metrics.histogram("cairn_load_seconds", ""), &metrics.histogram("cairn_load_seconds", ""));
}

TEST(MetricsTest, WritesTheTextExpositionFormat) {
  Metrics metrics;
  metrics.gauge("cairn_free", "Blocks of a tier that are free", {{"tier", "G2"}}).set(-3);
  metrics.gauge_function("cairn_free", "", {{"tier", "G3"}}, [] { return 0.25; });
  metrics.counter("cairn_bytes_total", "Bytes").add(std::numeric_limits<std::uint64_t>::max());
  metrics.counter_function("cairn_bytes_total", "", {{"tier", "G2"}}, [] { return 7; });
  EXPECT_EQ(metrics.to_prometheus(),
            "# HELP cairn_bytes_total Bytes\n"
            "# TYPE cairn_bytes_total counter\n"
            "cairn_bytes_total 18446744073709551615\n"
            "cairn_bytes_total{tier=\"G2\"} 7\n"
            "# HELP cairn_free Blocks of a tier that are free\n"
            "# TYPE cairn_free gauge\n"
            "cairn_free{tier=\"G2\"} -3\n"
            "cairn_free{tier=\"G3\"} 0.25\n");
}

TEST(MetricsTest, EscapesWhatTheFormatWouldMisread) {
  Metrics metrics;
  metrics.counter("a", "back\\slash\nand \"quotes\"", {{"path", "C:\\x \"y\"\nz"}, {"b", ""}});
  EXPECT_EQ(metrics.to_prometheus(),
            "# HELP a back\\\\slash\\nand \"quotes\"\n"
            "# TYPE a counter\n"
            "a{b=\"\",path=\"C:\\\\x \\\"y\\\"\\nz\"} 0\n");
}

TEST(MetricsTest, WritesWhatIsNoNumber) {
  Metrics metrics;
  metrics.gauge_function("a", "", {}, [] { return std::nan(""); });
  metrics.gauge_function("b", "", {}, [] { return std::numeric_limits<double>::infinity(); });
  metrics.gauge_function("c", "", {}, [] { return -std::numeric_limits<double>::infinity(); });
  const std::string text = metrics.to_prometheus();
  EXPECT_THAT(text, HasSubstr("\na NaN\n"));
  EXPECT_THAT(text, HasSubstr("\nb +Inf\n"));
  EXPECT_THAT(text, HasSubstr("\nc -Inf\n"));
}

TEST(MetricsTest, WritesHistogramsCumulativelyInSeconds) {
  Metrics metrics;
  Histogram& load = metrics.histogram("cairn_load_seconds", "Loads", {{"tier", "G2"}});
  load.record(microseconds(1));
  load.record(milliseconds(500));
  load.record(seconds(1000));
  const std::string text = metrics.to_prometheus();
  EXPECT_THAT(text, HasSubstr("# TYPE cairn_load_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_bucket{tier=\"G2\",le=\"1.024e-06\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_bucket{tier=\"G2\",le=\"0.402653184\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_bucket{tier=\"G2\",le=\"0.536870912\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_bucket{tier=\"G2\",le=\"137.438953472\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_bucket{tier=\"G2\",le=\"+Inf\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_sum{tier=\"G2\"} 1000.500001\n"));
  EXPECT_THAT(text, HasSubstr("cairn_load_seconds_count{tier=\"G2\"} 3\n"));
}

// The code finds a value's bucket from its bits; the test compares the value with every bound.
TEST(MetricsTest, AValueIsInTheFirstBucketThatIsNotBelowIt) {
  for (std::uint64_t power = 1; power <= (std::uint64_t{1} << 41U); power *= 2) {
    for (const std::uint64_t value : {power - 1, power, power + 1, power + power / 2, power + power / 2 + 1}) {
      Histogram histogram(Histogram::Unit::kNumber);
      histogram.record(value);
      std::size_t expected = 0;
      while (expected < histogram.bounds() && histogram.bound(expected) < static_cast<double>(value)) {
        ++expected;
      }
      EXPECT_EQ(histogram.counts().at(expected), 1U) << value;
    }
  }
}

TEST(MetricsTest, TheBoundsGoFromAMicrosecondToMinutes) {
  const Histogram histogram(Histogram::Unit::kSeconds);
  EXPECT_NEAR(histogram.bound(0), 1e-6, 0.1e-6);
  EXPECT_GT(histogram.bound(histogram.bounds() - 1), 100);
  for (std::size_t i = 2; i < histogram.bounds(); ++i) {
    EXPECT_DOUBLE_EQ(histogram.bound(i), 2 * histogram.bound(i - 2));
  }
}

TEST(MetricsTest, QuantilesAreRightWithinABucket) {
  Histogram histogram(Histogram::Unit::kSeconds);
  EXPECT_EQ(histogram.quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) {
    histogram.record(milliseconds(i));
  }
  EXPECT_EQ(histogram.count(), 1000U);
  EXPECT_DOUBLE_EQ(histogram.sum(), 500.5);
  for (const double q : {0.1, 0.5, 0.9, 0.99}) {
    EXPECT_NEAR(histogram.quantile(q), q, 0.15 * q) << q;
  }
  EXPECT_LE(histogram.quantile(0), histogram.quantile(1));
  const Histogram::Summary summary = histogram.summary();
  EXPECT_EQ(summary.count, 1000U);
  EXPECT_DOUBLE_EQ(summary.p90, histogram.quantile(0.9));
}

TEST(MetricsTest, WhatIsBeyondTheBoundsIsCounted) {
  Histogram histogram(Histogram::Unit::kSeconds);
  histogram.record(milliseconds(-5));
  histogram.record(std::chrono::hours(1));
  EXPECT_EQ(histogram.counts().front(), 1U);
  EXPECT_EQ(histogram.counts().back(), 1U);
  EXPECT_DOUBLE_EQ(histogram.quantile(1), histogram.bound(histogram.bounds() - 1));
  EXPECT_DOUBLE_EQ(histogram.sum(), 3600);
}

TEST(MetricsTest, TheSnapshotHoldsEveryFigureByNameAndLabels) {
  Metrics metrics;
  metrics.histogram("c_bytes", "", {}, Histogram::Unit::kNumber).record(std::uint64_t{3});
  metrics.counter("b_total", "", {{"tier", "G3"}}).add(3);
  metrics.counter("b_total", "", {{"tier", "G2"}}).add(2);
  metrics.gauge("a", "").set(-1);
  const std::vector<Metrics::Sample> samples = metrics.snapshot();
  ASSERT_EQ(samples.size(), 4U);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[0].kind, MetricKind::kGauge);
  EXPECT_EQ(samples[0].value, -1);
  EXPECT_EQ(samples[1].labels, (MetricLabels{{"tier", "G2"}}));
  EXPECT_EQ(samples[1].value, 2);
  EXPECT_EQ(samples[2].value, 3);
  EXPECT_EQ(samples[3].kind, MetricKind::kHistogram);
  EXPECT_EQ(samples[3].histogram.count, 1U);
  EXPECT_EQ(samples[3].histogram.sum, 3);
}

TEST(MetricsTest, CommonLabelsStandBesideTheOthers) {
  Metrics metrics(MetricLabels{{"dp_rank", "3"}});
  metrics.counter("a_total", "", {{"tier", "G2"}}).add(1);
  metrics.gauge_function("b", "", {}, [] { return 2.0; });
  EXPECT_THAT(metrics.to_prometheus(), HasSubstr("a_total{dp_rank=\"3\",tier=\"G2\"} 1\n"));
  EXPECT_THAT(metrics.to_prometheus(), HasSubstr("b{dp_rank=\"3\"} 2\n"));
}

// A figure of a pool takes the pool's lock, which ranks below.
TEST(MetricsTest, FunctionsMayTakeAnyLockAndAskForFigures) {
  Metrics metrics;
  Mutex pool(LockRank::kPool);
  metrics.gauge_function("a", "", {}, [&] {
    const MutexLock lock(pool);
    return static_cast<double>(metrics.counter("b_total", "").value());
  });
  EXPECT_THAT(metrics.to_prometheus(), HasSubstr("a 0\n"));
  EXPECT_EQ(metrics.snapshot().size(), 2U);
}

TEST(MetricsDeathTest, ANameHasOneKind) {
  Metrics metrics;
  metrics.counter("a", "");
  EXPECT_DEATH(metrics.gauge("a", ""), "the metric a is a counter, not a gauge");
  EXPECT_DEATH(metrics.histogram("a", "", {{"tier", "G2"}}), "not a histogram");
  metrics.histogram("b", "");
  EXPECT_DEATH(metrics.histogram("b", "", {}, Histogram::Unit::kNumber), "another unit");
}

TEST(MetricsDeathTest, AGaugeHasOneSource) {
  Metrics metrics;
  metrics.gauge_function("a", "", {}, [] { return 1.0; });
  EXPECT_DEATH(metrics.gauge_function("a", "", {}, [] { return 2.0; }), "a source already");
  EXPECT_DEATH(metrics.gauge("a", ""), "from a function");
}

TEST(MetricsDeathTest, NamesAreThoseOfPrometheus) {
  Metrics metrics;
  EXPECT_DEATH(metrics.counter("", ""), "not a valid name of a metric");
  EXPECT_DEATH(metrics.counter("1a", ""), "not a valid name of a metric");
  EXPECT_DEATH(metrics.counter("a-b", ""), "not a valid name of a metric");
  EXPECT_DEATH(metrics.counter("a", "", {{"x:y", ""}}), "not a valid name of a label");
  EXPECT_DEATH(metrics.histogram("a", "", {{"le", "1"}}), "not a valid name of a label");
  EXPECT_DEATH(metrics.counter("a", "", {{"x", "1"}, {"x", "2"}}), "given twice");
}

}  // namespace
}  // namespace cairn
