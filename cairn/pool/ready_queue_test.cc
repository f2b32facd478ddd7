#include "cairn/pool/ready_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr TenantId kA{0};
constexpr TenantId kB{1};

std::vector<std::uint32_t> all_of(const ReadyQueue& queue, TenantId tenant) {
  std::vector<std::uint32_t> slots;
  for (SlotId slot = queue.front(tenant); slot != kNoSlot; slot = queue.after(slot)) {
    slots.push_back(index_of(slot));
  }
  return slots;
}

TEST(ReadyQueueTest, SlotsStandInTheOrderInWhichTheyCame) {
  ReadyQueue queue = *ReadyQueue::create(5, 2);
  EXPECT_THAT(all_of(queue, kA), IsEmpty());
  EXPECT_FALSE(queue.contains(SlotId{0}));
  queue.push(SlotId{4}, kA);
  queue.push(SlotId{0}, kA);
  queue.push(SlotId{2}, kB);
  queue.push(SlotId{3}, kA);
  EXPECT_THAT(all_of(queue, kA), ElementsAre(4, 0, 3));
  EXPECT_THAT(all_of(queue, kB), ElementsAre(2));
  EXPECT_EQ(queue.size(), 4U);
  EXPECT_EQ(queue.size(kA), 3U);
  queue.remove(SlotId{0}, kA);
  EXPECT_FALSE(queue.contains(SlotId{0}));
  EXPECT_TRUE(queue.contains(SlotId{4}));
  EXPECT_THAT(all_of(queue, kA), ElementsAre(4, 3));
  queue.push(SlotId{0}, kB);
  queue.remove(SlotId{4}, kA);
  queue.remove(SlotId{3}, kA);
  EXPECT_THAT(all_of(queue, kA), IsEmpty());
  EXPECT_THAT(all_of(queue, kB), ElementsAre(2, 0));
  EXPECT_EQ(queue.size(kA), 0U);
}

TEST(ReadyQueueTest, AParkedSlotIsOutUntilItIsPushedOrForgotten) {
  ReadyQueue queue = *ReadyQueue::create(3, 1);
  queue.park(SlotId{1});
  queue.park(SlotId{2});
  EXPECT_FALSE(queue.contains(SlotId{1}));
  EXPECT_TRUE(queue.is_parked(SlotId{1}));
  EXPECT_EQ(queue.parked(), 2U);
  queue.push(SlotId{1}, kA);
  EXPECT_FALSE(queue.is_parked(SlotId{1}));
  queue.unpark(SlotId{2});
  queue.unpark(SlotId{0});  // which was not
  EXPECT_EQ(queue.parked(), 0U);
  EXPECT_THAT(all_of(queue, kA), ElementsAre(1));
}

TEST(ReadyQueueTest, CountsWhatHangsBelowASlot) {
  ReadyQueue queue = *ReadyQueue::create(3, 1);
  queue.add_below(SlotId{1});
  queue.add_below(SlotId{1});
  queue.push(SlotId{1}, kA);
  queue.remove_below(SlotId{1});
  EXPECT_EQ(queue.below(SlotId{1}), 1U);
  EXPECT_EQ(queue.below(SlotId{0}), 0U);
  queue.remove(SlotId{1}, kA);
  EXPECT_EQ(queue.below(SlotId{1}), 1U) << "it is of the block, ready or not";
}

}  // namespace
}  // namespace cairn
