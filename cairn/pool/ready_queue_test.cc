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
  std::vector<std::uint32_t> block_ids;
  for (BlockId block_id = queue.front(tenant); block_id != kNoBlock; block_id = queue.next(block_id)) {
    block_ids.push_back(index_of(block_id));
  }
  return block_ids;
}

TEST(ReadyQueueTest, BlocksAreInTheOrderOfArrival) {
  ReadyQueue queue = *ReadyQueue::create(5, 2);
  EXPECT_THAT(all_of(queue, kA), IsEmpty());
  EXPECT_FALSE(queue.contains(BlockId{0}));
  queue.push(BlockId{4}, kA);
  queue.push(BlockId{0}, kA);
  queue.push(BlockId{2}, kB);
  queue.push(BlockId{3}, kA);
  EXPECT_THAT(all_of(queue, kA), ElementsAre(4, 0, 3));
  EXPECT_THAT(all_of(queue, kB), ElementsAre(2));
  EXPECT_EQ(queue.size(), 4U);
  EXPECT_EQ(queue.size(kA), 3U);
  queue.remove(BlockId{0}, kA);
  EXPECT_FALSE(queue.contains(BlockId{0}));
  EXPECT_TRUE(queue.contains(BlockId{4}));
  EXPECT_THAT(all_of(queue, kA), ElementsAre(4, 3));
  queue.push(BlockId{0}, kB);
  queue.remove(BlockId{4}, kA);
  queue.remove(BlockId{3}, kA);
  EXPECT_THAT(all_of(queue, kA), IsEmpty());
  EXPECT_THAT(all_of(queue, kB), ElementsAre(2, 0));
  EXPECT_EQ(queue.size(kA), 0U);
}

TEST(ReadyQueueTest, AParkedBlockIsOutUntilItIsPushedOrForgotten) {
  ReadyQueue queue = *ReadyQueue::create(3, 1);
  queue.mark_returning(BlockId{1});
  queue.mark_returning(BlockId{2});
  EXPECT_FALSE(queue.contains(BlockId{1}));
  EXPECT_TRUE(queue.is_returning(BlockId{1}));
  EXPECT_EQ(queue.returning_count(), 2U);
  queue.push(BlockId{1}, kA);
  EXPECT_FALSE(queue.is_returning(BlockId{1}));
  queue.clear_returning(BlockId{2});
  queue.clear_returning(BlockId{0});  // which is not returning
  EXPECT_EQ(queue.returning_count(), 0U);
  EXPECT_THAT(all_of(queue, kA), ElementsAre(1));
}

TEST(ReadyQueueTest, CountsWhatHangsBelowABlock) {
  ReadyQueue queue = *ReadyQueue::create(3, 1);
  queue.add_child(BlockId{1});
  queue.add_child(BlockId{1});
  queue.push(BlockId{1}, kA);
  queue.remove_child(BlockId{1});
  EXPECT_EQ(queue.ready_children(BlockId{1}), 1U);
  EXPECT_EQ(queue.ready_children(BlockId{0}), 0U);
  queue.remove(BlockId{1}, kA);
  EXPECT_EQ(queue.ready_children(BlockId{1}), 1U) << "the count belongs to the block, ready or not";
}

}  // namespace
}  // namespace cairn
