#include "cairn/base/clock.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using namespace std::chrono_literals;

TEST(ClockTest, ManualTimeMovesOnlyWhenAdvanced) {
  ManualClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now() - start, 0ns);
  clock.advance(3s);
  EXPECT_EQ(clock.now() - start, 3s);
}

TEST(ClockTest, SteadyTimeNeverGoesBack) {
  TimePoint last = steady_clock().now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = steady_clock().now();
    ASSERT_GE(now, last);
    last = now;
  }
}

}  // namespace
}  // namespace cairn
