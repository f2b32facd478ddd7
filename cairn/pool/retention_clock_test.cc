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

// What has expired; kNoSlot where nothing has. Anything else that is due fails the test.
SlotId due(RetentionClock& clock, TimePoint now) {
  const auto next = clock.pop_due(now);
  if (!next) {
    return kNoSlot;
  }
  EXPECT_EQ(next->what, RetentionClock::What::kExpired);
  return next->slot;
}

TEST(RetentionClockTest, GivesOutWhatIsDueEarliestFirst) {
  RetentionClock clock = *RetentionClock::create(3);
  clock.set_time_to_live(SlotId{0}, milliseconds(30));
  clock.set_time_to_live(SlotId{1}, milliseconds(10));
  clock.set_time_to_live(SlotId{2}, milliseconds(20));
  for (const std::uint32_t slot : {0U, 1U, 2U}) {
    clock.start(SlotId{slot}, milliseconds(100));
  }
  EXPECT_EQ(due(clock, milliseconds(110) - nanoseconds(1)), kNoSlot);
  EXPECT_EQ(due(clock, milliseconds(200)), SlotId{1});
  EXPECT_EQ(due(clock, milliseconds(200)), SlotId{2});
  EXPECT_EQ(due(clock, milliseconds(129)), kNoSlot);
  EXPECT_EQ(due(clock, milliseconds(130)), SlotId{0});
  EXPECT_EQ(due(clock, hours(1000)), kNoSlot);
}

TEST(RetentionClockTest, IgnoresSlotsWithoutATimeToLive) {
  RetentionClock clock = *RetentionClock::create(2);
  clock.start(SlotId{0}, milliseconds(0));
  clock.set_time_to_live(SlotId{1}, milliseconds(1));
  clock.set_time_to_live(SlotId{1}, std::nullopt);
  clock.start(SlotId{1}, milliseconds(0));
  EXPECT_EQ(due(clock, hours(1000)), kNoSlot);
  clock.stop(SlotId{0});  // is not queued: nothing to do
}

TEST(RetentionClockTest, KeepsTheTimeToLiveForTheNextStart) {
  RetentionClock clock = *RetentionClock::create(1);
  clock.set_time_to_live(SlotId{0}, milliseconds(10));
  clock.start(SlotId{0}, milliseconds(0));
  clock.stop(SlotId{0});
  EXPECT_EQ(due(clock, milliseconds(50)), kNoSlot);
  clock.start(SlotId{0}, milliseconds(50));
  EXPECT_EQ(due(clock, milliseconds(59)), kNoSlot);
  EXPECT_EQ(due(clock, milliseconds(60)), SlotId{0});
}

TEST(RetentionClockTest, RoundsUpToMillisecondsAndDownToTheLongestItKnows) {
  RetentionClock clock = *RetentionClock::create(2);
  clock.set_time_to_live(SlotId{0}, nanoseconds(1));
  clock.set_time_to_live(SlotId{1}, Duration::max());
  clock.start(SlotId{0}, milliseconds(0));
  clock.start(SlotId{1}, milliseconds(0));
  EXPECT_EQ(due(clock, nanoseconds(999'999)), kNoSlot);
  EXPECT_EQ(due(clock, milliseconds(1)), SlotId{0});
  EXPECT_EQ(due(clock, hours(24 * 49)), kNoSlot);
  EXPECT_EQ(due(clock, hours(24 * 50)), SlotId{1});  // 2^32 ms
}

TEST(RetentionClockTest, StaysInOrderHoweverSlotsComeAndGo) {
  constexpr std::uint32_t kSlots = 50;
  RetentionClock clock = *RetentionClock::create(kSlots);
  std::map<std::uint32_t, std::int64_t> deadlines;
  std::mt19937 random(1);
  std::int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    now += random() % 3;
    const std::uint32_t slot = random() % kSlots;
    if (deadlines.erase(slot) > 0) {
      clock.stop(SlotId{slot});
    } else {
      const std::int64_t time_to_live = 1 + random() % 100;
      clock.set_time_to_live(SlotId{slot}, milliseconds(time_to_live));
      clock.start(SlotId{slot}, milliseconds(now));
      deadlines[slot] = now + time_to_live;
    }
    std::int64_t last = 0;
    for (auto due = clock.pop_due(milliseconds(now)); due; due = clock.pop_due(milliseconds(now))) {
      ASSERT_EQ(due->what, RetentionClock::What::kExpired);
      const auto found = deadlines.find(index_of(due->slot));
      ASSERT_NE(found, deadlines.end());
      ASSERT_LE(found->second, now);
      ASSERT_GE(found->second, last);
      last = found->second;
      deadlines.erase(found);
    }
    for (const auto& [waiting, deadline] : deadlines) {
      ASSERT_GT(deadline, now) << "slot " << waiting << " should have been given out";
    }
  }
}

}  // namespace
}  // namespace cairn
