#include "cairn/pool/expiry_queue.h"

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

TEST(ExpiryQueueTest, GivesOutWhatIsDueEarliestFirst) {
  ExpiryQueue queue = *ExpiryQueue::create(3);
  queue.set_time_to_live(SlotId{0}, milliseconds(30));
  queue.set_time_to_live(SlotId{1}, milliseconds(10));
  queue.set_time_to_live(SlotId{2}, milliseconds(20));
  for (const std::uint32_t slot : {0U, 1U, 2U}) {
    queue.start(SlotId{slot}, milliseconds(100));
  }
  EXPECT_EQ(queue.pop_due(milliseconds(110) - nanoseconds(1)), kNoSlot);
  EXPECT_EQ(queue.pop_due(milliseconds(200)), SlotId{1});
  EXPECT_EQ(queue.pop_due(milliseconds(200)), SlotId{2});
  EXPECT_EQ(queue.pop_due(milliseconds(129)), kNoSlot);
  EXPECT_EQ(queue.pop_due(milliseconds(130)), SlotId{0});
  EXPECT_EQ(queue.pop_due(hours(1000)), kNoSlot);
}

TEST(ExpiryQueueTest, IgnoresSlotsWithoutATimeToLive) {
  ExpiryQueue queue = *ExpiryQueue::create(2);
  queue.start(SlotId{0}, milliseconds(0));
  queue.set_time_to_live(SlotId{1}, milliseconds(1));
  queue.set_time_to_live(SlotId{1}, std::nullopt);
  queue.start(SlotId{1}, milliseconds(0));
  EXPECT_EQ(queue.pop_due(hours(1000)), kNoSlot);
  queue.stop(SlotId{0});  // is not queued: nothing to do
}

TEST(ExpiryQueueTest, KeepsTheTimeToLiveForTheNextStart) {
  ExpiryQueue queue = *ExpiryQueue::create(1);
  queue.set_time_to_live(SlotId{0}, milliseconds(10));
  queue.start(SlotId{0}, milliseconds(0));
  queue.stop(SlotId{0});
  EXPECT_EQ(queue.pop_due(milliseconds(50)), kNoSlot);
  queue.start(SlotId{0}, milliseconds(50));
  EXPECT_EQ(queue.pop_due(milliseconds(59)), kNoSlot);
  EXPECT_EQ(queue.pop_due(milliseconds(60)), SlotId{0});
}

TEST(ExpiryQueueTest, RoundsUpToMillisecondsAndDownToTheLongestItKnows) {
  ExpiryQueue queue = *ExpiryQueue::create(2);
  queue.set_time_to_live(SlotId{0}, nanoseconds(1));
  queue.set_time_to_live(SlotId{1}, Duration::max());
  queue.start(SlotId{0}, milliseconds(0));
  queue.start(SlotId{1}, milliseconds(0));
  EXPECT_EQ(queue.pop_due(nanoseconds(999'999)), kNoSlot);
  EXPECT_EQ(queue.pop_due(milliseconds(1)), SlotId{0});
  EXPECT_EQ(queue.pop_due(hours(24 * 49)), kNoSlot);
  EXPECT_EQ(queue.pop_due(hours(24 * 50)), SlotId{1});  // 2^32 ms
}

TEST(ExpiryQueueTest, StaysInOrderHoweverSlotsComeAndGo) {
  constexpr std::uint32_t kSlots = 50;
  ExpiryQueue queue = *ExpiryQueue::create(kSlots);
  std::map<std::uint32_t, std::int64_t> deadlines;
  std::mt19937 random(1);
  std::int64_t now = 0;
  for (int step = 0; step < 20'000; ++step) {
    now += random() % 3;
    const std::uint32_t slot = random() % kSlots;
    if (deadlines.erase(slot) > 0) {
      queue.stop(SlotId{slot});
    } else {
      const std::int64_t time_to_live = 1 + random() % 100;
      queue.set_time_to_live(SlotId{slot}, milliseconds(time_to_live));
      queue.start(SlotId{slot}, milliseconds(now));
      deadlines[slot] = now + time_to_live;
    }
    std::int64_t last = 0;
    for (SlotId due = queue.pop_due(milliseconds(now)); due != kNoSlot; due = queue.pop_due(milliseconds(now))) {
      const auto found = deadlines.find(index_of(due));
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
