#include "cairn/onboard/prefill_meter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace cairn {
namespace {

using Source = PrefillStatus::Source;

// 1,000 tokens in 50 ms.
EngineIteration prefill() {
  EngineIteration iteration;
  iteration.add_prefill(0, 1000);
  iteration.duration = std::chrono::milliseconds(50);
  return iteration;
}

TEST(PrefillMeterTest, NothingIsKnownOfAnEngineThatReportsNothing) {
  const PrefillMeter meter(0, 100'000);
  EXPECT_FALSE(meter.estimate().has_value());
  EXPECT_EQ(meter.status().source, Source::kUnknown);
  EXPECT_EQ(meter.status().tokens_per_second, 0);
}

TEST(PrefillMeterTest, AFastEngineIsAssumedUntilItIsMeasured) {
  PrefillMeter meter(0, 100'000);
  meter.expect_iterations();
  ASSERT_TRUE(meter.estimate().has_value());
  EXPECT_EQ(meter.status().source, Source::kAssumed);
  EXPECT_NEAR(meter.status().tokens_per_second, 100'000, 1) << "10 GB/s";
  for (std::uint32_t i = 0; i < PrefillSpeed::kLeastIterations; ++i) {
    EXPECT_EQ(meter.status().source, Source::kAssumed);
    meter.add(prefill(), std::chrono::seconds(i));
  }
  EXPECT_EQ(meter.status().source, Source::kLearned);
  EXPECT_NEAR(meter.status().tokens_per_second, 20'000, 1000);
  EXPECT_LT(meter.status().tokens_per_second_at_32k, meter.status().tokens_per_second);
  EXPECT_TRUE(std::isinf(meter.status().tokens_per_iteration));
  EXPECT_EQ(meter.status().iterations, PrefillSpeed::kLeastIterations);
}

TEST(PrefillMeterTest, TheFirstReportTellsThatMoreAreToCome) {
  PrefillMeter meter(0, 100'000);
  meter.add(prefill(), {});
  EXPECT_EQ(meter.status().source, Source::kAssumed);
}

TEST(PrefillMeterTest, APinnedSpeedStays) {
  PrefillMeter meter(7000, 100'000);
  EXPECT_EQ(meter.status().source, Source::kPinned);
  for (int i = 0; i < 100; ++i) {
    meter.add(prefill(), std::chrono::seconds(i));
  }
  EXPECT_EQ(meter.status().source, Source::kPinned);
  EXPECT_NEAR(meter.estimate()->tokens_per_second(0), 7000, 1e-6);
  EXPECT_EQ(meter.status().iterations, 100U);
}

TEST(PrefillMeterTest, FollowsTheEngine) {
  PrefillMeter meter(0, 100'000);
  for (int i = 0; i < 200; ++i) {
    EngineIteration iteration = prefill();
    iteration.duration *= i < 100 ? 1 : 2;
    meter.add(iteration, std::chrono::seconds(i));
  }
  EXPECT_NEAR(meter.status().tokens_per_second, 10'000, 500);
}

}  // namespace
}  // namespace cairn
