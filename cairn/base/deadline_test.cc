#include "cairn/base/deadline.h"

#include <gtest/gtest.h>

#include <limits>

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kExtremes[] = {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 62,
                                       std::uint64_t{1} << 63, 10'000'000'000'000};

TEST(DeadlineTest, MillisecondsSaturate) {
  EXPECT_EQ(limited_ms(0), Duration::zero());
  EXPECT_EQ(limited_ms(1500), milliseconds(1500));
  for (const std::uint64_t extreme : kExtremes) {
    EXPECT_EQ(limited_ms(extreme), kLongestDuration) << extreme;
  }
  const auto most = static_cast<std::uint64_t>(std::chrono::floor<milliseconds>(kLongestDuration).count());
  EXPECT_EQ(limited_ms(most), milliseconds(most));
  EXPECT_EQ(limited_ms(most + 1), kLongestDuration);
}

TEST(DeadlineTest, DeadlinesSaturate) {
  EXPECT_EQ(deadline_after(seconds(5), seconds(2)), seconds(7));
  EXPECT_EQ(deadline_after(seconds(5), seconds(-2)), seconds(5));
  EXPECT_EQ(deadline_after(seconds(5), Duration::min()), seconds(5));
  EXPECT_EQ(deadline_after(seconds(5), Duration::max()), seconds(5) + kLongestDuration);
  EXPECT_EQ(deadline_after(kLatestTime - seconds(1), Duration::max()), kLatestTime);
  EXPECT_EQ(deadline_after(TimePoint::max(), seconds(1)), kLatestTime);
}

TEST(DeadlineTest, TheTimeUntilADeadlineCanBeWaitedFor) {
  EXPECT_EQ(time_until(seconds(7), seconds(5)), seconds(2));
  EXPECT_EQ(time_until(seconds(4), seconds(5)), Duration::zero());
  EXPECT_EQ(time_until(TimePoint::max(), seconds(5)), kLongestDuration);
  EXPECT_EQ(time_until(TimePoint::min(), seconds(5)), Duration::zero());
}

}  // namespace
}  // namespace cairn
