#include "cairn/pool/retention_clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <vector>

namespace cairn {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The expired block, or kNoBlock. Anything else that is due fails the test.
BlockId due(RetentionClock& clock, TimePoint now) {
  const auto next = clock.pop_due(now);
  if (!next) {
    return kNoBlock;
  }
  EXPECT_EQ(next->what, RetentionClock::What::kExpired);
  return next->block_id;
}

TEST(RetentionClockTest, GivesOutWhatIsDueEarliestFirst) {
  RetentionClock clock = *RetentionClock::create(3);
  clock.set_time_to_live(BlockId{0}, milliseconds(30));
  clock.set_time_to_live(BlockId{1}, milliseconds(10));
  clock.set_time_to_live(BlockId{2}, milliseconds(20));
  for (const std::uint32_t block_id : {0U, 1U, 2U}) {
    clock.start(BlockId{block_id}, milliseconds(100));
  }
  EXPECT_EQ(due(clock, milliseconds(110) - nanoseconds(1)), kNoBlock);
  EXPECT_EQ(due(clock, milliseconds(200)), BlockId{1});
  EXPECT_EQ(due(clock, milliseconds(200)), BlockId{2});
  EXPECT_EQ(due(clock, milliseconds(129)), kNoBlock);
  EXPECT_EQ(due(clock, milliseconds(130)), BlockId{0});
  EXPECT_EQ(due(clock, hours(1000)), kNoBlock);
}

TEST(RetentionClockTest, IgnoresBlocksWithoutATimeToLive) {
  RetentionClock clock = *RetentionClock::create(2);
  clock.start(BlockId{0}, milliseconds(0));
  clock.set_time_to_live(BlockId{1}, milliseconds(1));
  clock.set_time_to_live(BlockId{1}, std::nullopt);
  clock.start(BlockId{1}, milliseconds(0));
  EXPECT_EQ(due(clock, hours(1000)), kNoBlock);
  clock.stop(BlockId{0});  // is not queued: nothing to do
}

TEST(RetentionClockTest, KeepsTheTimeToLiveForTheNextStart) {
  RetentionClock clock = *RetentionClock::create(1);
  clock.set_time_to_live(BlockId{0}, milliseconds(10));
  clock.start(BlockId{0}, milliseconds(0));
  clock.stop(BlockId{0});
  EXPECT_EQ(due(clock, milliseconds(50)), kNoBlock);
  clock.start(BlockId{0}, milliseconds(50));
  EXPECT_EQ(due(clock, milliseconds(59)), kNoBlock);
  EXPECT_EQ(due(clock, milliseconds(60)), BlockId{0});
}

TEST(RetentionClockTest, RoundsUpToMillisecondsAndDownToTheLongestItKnows) {
  RetentionClock clock = *RetentionClock::create(2);
  clock.set_time_to_live(BlockId{0}, nanoseconds(1));
  clock.set_time_to_live(BlockId{1}, Duration::max());
  clock.start(BlockId{0}, milliseconds(0));
  clock.start(BlockId{1}, milliseconds(0));
  EXPECT_EQ(due(clock, nanoseconds(999'999)), kNoBlock);
  EXPECT_EQ(due(clock, milliseconds(1)), BlockId{0});
  EXPECT_EQ(due(clock, hours(24 * 49)), kNoBlock);
  EXPECT_EQ(due(clock, hours(24 * 50)), BlockId{1});  // 2^32 ms
}

TEST(RetentionClockTest, StaysInOrderHoweverBlocksComeAndGo) {
  constexpr std::uint32_t kBlocks = 50;
  RetentionClock clock = *RetentionClock::create(kBlocks);
  std::map<std::uint32_t, std::int64_t> deadlines;
  std::mt19937 random(1);
  std::int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    now += random() % 3;
    const std::uint32_t block_id = random() % kBlocks;
    if (deadlines.erase(block_id) > 0) {
      clock.stop(BlockId{block_id});
    } else {
      const std::int64_t time_to_live = 1 + random() % 100;
      clock.set_time_to_live(BlockId{block_id}, milliseconds(time_to_live));
      clock.start(BlockId{block_id}, milliseconds(now));
      deadlines[block_id] = now + time_to_live;
    }
    std::int64_t last = 0;
    for (auto due = clock.pop_due(milliseconds(now)); due; due = clock.pop_due(milliseconds(now))) {
      ASSERT_EQ(due->what, RetentionClock::What::kExpired);
      const auto found = deadlines.find(index_of(due->block_id));
      ASSERT_NE(found, deadlines.end());
      ASSERT_LE(found->second, now);
      ASSERT_GE(found->second, last);
      last = found->second;
      deadlines.erase(found);
    }
    for (const auto& [waiting, deadline] : deadlines) {
      ASSERT_GT(deadline, now) << "block " << waiting << " should have been returned";
    }
  }
}

}  // namespace
}  // namespace cairn
