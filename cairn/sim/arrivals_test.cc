#include "cairn/sim/arrivals.h"

#include <gtest/gtest.h>

#include "cairn/sim/list_source_testing.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;

// Takes all requests that have arrived; returns their lines.
std::vector<std::uint64_t> lines(Arrivals& arrivals, TimePoint now) {
  std::vector<std::uint64_t> taken;
  ReplayRequest request;
  while (arrivals.take(now, request)) {
    taken.push_back(request.line);
  }
  return taken;
}

using Lines = std::vector<std::uint64_t>;

TEST(ArrivalsTest, TheFirstArrivesAtZeroAndOthersInOrderOfTime) {
  ListSource source({{.line = 1, .arrival = milliseconds(500)},
                     {.line = 2, .arrival = milliseconds(700)},
                     {.line = 3, .arrival = milliseconds(600)},
                     {.line = 4, .arrival = milliseconds(700)}});
  Arrivals arrivals(source, 0);
  EXPECT_TRUE(arrivals.is_open_loop());
  EXPECT_EQ(arrivals.next_time(), TimePoint(0));
  EXPECT_EQ(lines(arrivals, TimePoint(0)), Lines({1}));
  EXPECT_EQ(arrivals.next_time(), milliseconds(100));
  EXPECT_EQ(lines(arrivals, milliseconds(200)), Lines({3, 2, 4}));
  EXPECT_EQ(arrivals.next_time(), std::nullopt);
}

TEST(ArrivalsTest, ATurnArrivesAfterTheAnswerAndItsDelay) {
  ListSource source({{.line = 1, .arrival = milliseconds(0), .session = 7},
                     {.line = 2, .arrival = milliseconds(50), .session = 7, .delay = milliseconds(10)},
                     {.line = 3, .arrival = milliseconds(80), .session = 7}});
  Arrivals arrivals(source, 0);
  EXPECT_FALSE(arrivals.is_open_loop());
  EXPECT_EQ(lines(arrivals, TimePoint(0)), Lines({1}));
  EXPECT_EQ(arrivals.next_time(), std::nullopt) << "it waits for the answer";
  arrivals.completed(7, milliseconds(200));
  EXPECT_EQ(arrivals.next_time(), milliseconds(210));
  EXPECT_EQ(lines(arrivals, milliseconds(210)), Lines({2}));
  arrivals.completed(7, milliseconds(300));
  EXPECT_EQ(arrivals.next_time(), milliseconds(330)) << "the difference of the arrivals";
  EXPECT_EQ(lines(arrivals, milliseconds(330)), Lines({3}));
  arrivals.completed(7, milliseconds(400));
  EXPECT_EQ(arrivals.next_time(), std::nullopt);
}

TEST(ArrivalsTest, AFirstTurnKeepsItsDelaySoThatTheCallerCanRefuseIt) {
  ListSource source({{.line = 1, .session = 7, .delay = milliseconds(10)}});
  Arrivals arrivals(source, 0);
  ReplayRequest request;
  ASSERT_TRUE(arrivals.take(TimePoint(0), request));
  EXPECT_TRUE(request.delay.has_value());
}

TEST(ArrivalsTest, AConcurrencyIgnoresTimesAndCountsSessionsBetweenTurns) {
  ListSource source({{.line = 1, .arrival = milliseconds(0), .session = 7},
                     {.line = 2, .arrival = milliseconds(9'000)},
                     {.line = 3, .arrival = milliseconds(9'000), .session = 7, .delay = milliseconds(5)},
                     {.line = 4, .arrival = milliseconds(99'000)}});
  Arrivals arrivals(source, 2);
  EXPECT_EQ(lines(arrivals, TimePoint(0)), Lines({1, 2}));
  EXPECT_EQ(arrivals.next_time(), std::nullopt);
  arrivals.completed(7, milliseconds(10));
  EXPECT_EQ(arrivals.next_time(), milliseconds(15)) << "the session counts as in flight between its turns";
  EXPECT_EQ(lines(arrivals, milliseconds(10)), Lines());
  EXPECT_EQ(lines(arrivals, milliseconds(15)), Lines({3}));
  arrivals.completed(0, milliseconds(20));
  EXPECT_EQ(lines(arrivals, milliseconds(20)), Lines({4}));
  arrivals.completed(7, milliseconds(30));
  arrivals.completed(0, milliseconds(30));
  EXPECT_EQ(arrivals.next_time(), std::nullopt);
}

}  // namespace
}  // namespace cairn::sim
