#include "cairn/allocator/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kDevice = 3;

PhysicalTokenBlock block(std::uint32_t number) { return {number, kBlockSize, kDevice}; }

BlockAllocator make_allocator(std::uint32_t total_blocks) {
  return *BlockAllocator::create(total_blocks, kBlockSize, kDevice);
}

std::shared_ptr<SharedBlockAllocator> make_shared_allocator(std::uint32_t total_blocks) {
  return *SharedBlockAllocator::create(total_blocks, kBlockSize, kDevice);
}

std::vector<PhysicalTokenBlock> take(auto& allocator, std::uint32_t count) {
  std::vector<PhysicalTokenBlock> blocks;
  EXPECT_TRUE(allocator.allocate(count, blocks));
  return blocks;
}

// The free blocks, in the order of allocation.
std::vector<std::uint32_t> drain(BlockAllocator& allocator) {
  std::vector<std::uint32_t> numbers;
  while (allocator.free_blocks() > 0) {
    numbers.push_back(allocator.allocate()->block_number);
  }
  return numbers;
}

void expect_error(const auto& result, ErrorCode code, const char* part) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code);
  EXPECT_THAT(result.error().message, HasSubstr(part));
}

TEST(BlockAllocatorTest, NeedsBlocksAndTokensInThem) {
  expect_error(BlockAllocator::create(0, kBlockSize, 0), ErrorCode::kInvalidArgument, "0 blocks");
  expect_error(BlockAllocator::create(4, 0, 0), ErrorCode::kInvalidArgument, "0 tokens");
  expect_error(SharedBlockAllocator::create(0, kBlockSize, 0), ErrorCode::kInvalidArgument, "0 blocks");
}

TEST(BlockAllocatorTest, HandsOutBlocksInOrderAndCounts) {
  BlockAllocator allocator = make_allocator(3);
  EXPECT_EQ(allocator.total_blocks(), 3U);
  EXPECT_EQ(allocator.free_blocks(), 3U);
  EXPECT_EQ(allocator.block_size(), kBlockSize);
  EXPECT_EQ(allocator.device_id(), kDevice);
  EXPECT_EQ(*allocator.allocate(), block(0));
  EXPECT_EQ(*allocator.allocate(), block(1));
  EXPECT_EQ(allocator.free_blocks(), 1U);
  EXPECT_EQ(*allocator.allocate(), block(2));
  EXPECT_EQ(allocator.total_blocks(), 3U);
  expect_error(allocator.allocate(), ErrorCode::kExhausted, "all 3 blocks of device 3 are in use");
}

TEST(BlockAllocatorTest, AFreedBlockIsTheNextHandedOut) {
  BlockAllocator allocator = make_allocator(4);
  take(allocator, 3);
  EXPECT_EQ(*allocator.free(std::vector{block(0)}), 1U);
  EXPECT_EQ(*allocator.free(std::vector{block(2)}), 1U);
  EXPECT_THAT(drain(allocator), ElementsAre(2, 0, 3));
}

TEST(BlockAllocatorTest, ABatchIsFreedFrontToBackSoItsLastIsReusedFirst) {
  BlockAllocator allocator = make_allocator(4);
  const std::vector<PhysicalTokenBlock> blocks = take(allocator, 3);
  EXPECT_EQ(*allocator.free(blocks), 3U);
  EXPECT_THAT(drain(allocator), ElementsAre(2, 1, 0, 3));
}

TEST(BlockAllocatorTest, ABatchIsAllocatedWholeOrNotAtAll) {
  BlockAllocator allocator = make_allocator(4);
  std::vector<PhysicalTokenBlock> blocks = take(allocator, 2);
  expect_error(allocator.allocate(3, blocks), ErrorCode::kExhausted,
               "cannot allocate 3 blocks of device 3: 2 of 4 are free");
  EXPECT_THAT(blocks, ElementsAre(block(0), block(1)));
  EXPECT_TRUE(allocator.allocate(2, blocks));
  EXPECT_THAT(blocks, ElementsAre(block(0), block(1), block(2), block(3)));
  EXPECT_TRUE(allocator.allocate(0, blocks));
}

TEST(BlockAllocatorTest, ASharedBlockReturnsOnItsLastReference) {
  BlockAllocator allocator = make_allocator(2);
  const std::vector<PhysicalTokenBlock> blocks = take(allocator, 1);
  ASSERT_TRUE(allocator.retain(blocks));
  EXPECT_EQ(*allocator.references(blocks[0]), 2U);
  EXPECT_EQ(*allocator.free(blocks), 0U);
  EXPECT_EQ(allocator.free_blocks(), 1U);
  EXPECT_EQ(*allocator.free(blocks), 1U);
  EXPECT_EQ(allocator.free_blocks(), 2U);
}

TEST(BlockAllocatorTest, RejectsBlocksThatAreNotItsOwn) {
  BlockAllocator allocator = make_allocator(4);
  take(allocator, 3);
  const auto rejected = [&](const PhysicalTokenBlock& bad, ErrorCode code, const char* part) {
    // After a good one: the whole batch has no effect.
    const std::vector<PhysicalTokenBlock> batch{block(0), block(1), bad};
    expect_error(allocator.free(batch), code, part);
    expect_error(allocator.retain(batch), code, part);
    expect_error(allocator.references(bad), code, part);
  };
  rejected({2, kBlockSize, 9}, ErrorCode::kInvalidArgument,
           "block 2 of device 9 was given to the allocator of device 3");
  rejected({2, 32, kDevice}, ErrorCode::kInvalidArgument, "block 2 of device 3 holds 32 tokens");
  rejected(block(4), ErrorCode::kInvalidArgument, "block 4 of device 3 does not exist, the last is 3");
  rejected(block(3), ErrorCode::kFailedPrecondition, "block 3 of device 3 is free already");
  for (std::uint32_t number = 0; number < 3; ++number) {
    EXPECT_EQ(*allocator.references(block(number)), 1U);
  }
  EXPECT_THAT(drain(allocator), ElementsAre(3));
}

TEST(BlockAllocatorTest, FreeingTwiceIsAnErrorAlsoWithinOneBatch) {
  BlockAllocator allocator = make_allocator(3);
  take(allocator, 2);
  expect_error(allocator.free(std::vector{block(1), block(0), block(0)}), ErrorCode::kFailedPrecondition,
               "block 0 of device 3 is free already");
  EXPECT_EQ(*allocator.references(block(0)), 1U);
  EXPECT_EQ(*allocator.references(block(1)), 1U);
  ASSERT_TRUE(allocator.retain(std::vector{block(0), block(0)}));
  EXPECT_EQ(*allocator.free(std::vector{block(0), block(0), block(0)}), 1U);
  EXPECT_THAT(drain(allocator), ElementsAre(0, 2));
}

// Any sequence of calls against the seed's deque and a map of counts.
RC_GTEST_PROP(BlockAllocatorModelTest, FollowsTheFreeListOfTheModel, ()) {
  const auto total = *rc::gen::inRange<std::uint32_t>(1, 9);
  BlockAllocator allocator = make_allocator(total);
  std::deque<std::uint32_t> free_list;
  for (std::uint32_t number = 0; number < total; ++number) {
    free_list.push_back(number);
  }
  std::map<std::uint32_t, std::uint64_t> references;
  const auto steps = *rc::gen::container<std::vector<std::pair<int, std::vector<std::uint32_t>>>>(rc::gen::pair(
      rc::gen::inRange(0, 4),
      rc::gen::resize(4, rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange(0U, total + 1)))));
  for (const auto& [operation, numbers] : steps) {
    std::vector<PhysicalTokenBlock> blocks;
    std::transform(numbers.begin(), numbers.end(), std::back_inserter(blocks), block);
    if (operation <= 1) {
      std::vector<PhysicalTokenBlock> taken;
      const auto count = static_cast<std::uint32_t>(numbers.size());
      const bool expected = count <= free_list.size();
      RC_ASSERT(allocator.allocate(count, taken).has_value() == expected);
      RC_ASSERT(taken.size() == (expected ? count : 0));
      for (const PhysicalTokenBlock& got : taken) {
        RC_ASSERT(got == block(free_list.front()));
        references[free_list.front()] = 1;
        free_list.pop_front();
      }
    } else if (operation == 2) {
      const bool expected = std::all_of(numbers.begin(), numbers.end(),
                                        [&](std::uint32_t number) { return references.contains(number); });
      RC_ASSERT(allocator.retain(blocks).has_value() == expected);
      for (const std::uint32_t number : numbers) {
        references[number] += expected ? 1 : 0;
      }
      std::erase_if(references, [](const auto& entry) { return entry.second == 0; });
    } else {
      auto left = references;
      auto list = free_list;
      const bool expected = std::all_of(numbers.begin(), numbers.end(), [&](std::uint32_t number) {
        if (!left.contains(number)) {
          return false;
        }
        if (--left[number] == 0) {
          left.erase(number);
          list.push_front(number);
        }
        return true;
      });
      const auto returned = allocator.free(blocks);
      RC_ASSERT(returned.has_value() == expected);
      if (expected) {
        RC_ASSERT(*returned == list.size() - free_list.size());
        references = left;
        free_list = list;
      }
    }
    RC_ASSERT(allocator.free_blocks() == free_list.size());
    RC_ASSERT(free_list.size() + references.size() == total);
    for (const auto& [number, count] : references) {
      RC_ASSERT(*allocator.references(block(number)) == count);
    }
  }
  RC_ASSERT(drain(allocator) == std::vector<std::uint32_t>(free_list.begin(), free_list.end()));
}

TEST(SharedBlockAllocatorTest, ATenantNeedsANameOfItsOwnAndALimitForItsReservation) {
  const auto allocator = make_shared_allocator(8);
  expect_error(allocator->join({}), ErrorCode::kInvalidArgument, "no name");
  expect_error(allocator->join({.name = "a", .reserved = 3, .limit = 2}), ErrorCode::kInvalidArgument,
               "tenant 'a' reserves 3 blocks and is limited to 2");
  const auto tenant = allocator->join({.name = "a", .reserved = 2, .limit = 2});
  ASSERT_TRUE(tenant);
  EXPECT_EQ((*tenant)->share().name, "a");
  expect_error(allocator->join({.name = "a"}), ErrorCode::kAlreadyExists, "tenant 'a' is on this allocator already");
}

TEST(SharedBlockAllocatorTest, ReservationsDoNotExceedTheTotal) {
  const auto allocator = make_shared_allocator(8);
  expect_error(allocator->join({.name = "a", .reserved = 9}), ErrorCode::kExhausted, "reserves 9 blocks");
  auto a = *allocator->join({.name = "a", .reserved = 5});
  expect_error(allocator->join({.name = "b", .reserved = 4}), ErrorCode::kExhausted,
               "tenant 'b' reserves 4 blocks where others have reserved 5 of 8");
  EXPECT_TRUE(allocator->join({.name = "b", .reserved = 3}));  // and leaves at once
  a.reset();
  EXPECT_TRUE(allocator->join({.name = "b", .reserved = 8}));
}

TEST(SharedBlockAllocatorTest, AReservationOthersAreUsingCannotBePromised) {
  const auto allocator = make_shared_allocator(8);
  const auto a = *allocator->join({.name = "a"});
  const std::vector<PhysicalTokenBlock> blocks = take(*a, 6);
  expect_error(allocator->join({.name = "b", .reserved = 3}), ErrorCode::kExhausted, "others use all but 2");
  ASSERT_TRUE(a->free(std::span(blocks).first(1)));
  EXPECT_TRUE(allocator->join({.name = "b", .reserved = 3}));
}

TEST(SharedBlockAllocatorTest, ATenantAlwaysGetsItsReservation) {
  const auto allocator = make_shared_allocator(8);
  const auto a = *allocator->join({.name = "a"});
  const auto b = *allocator->join({.name = "b", .reserved = 3});
  std::vector<PhysicalTokenBlock> greedy = take(*a, 5);
  EXPECT_FALSE(a->can_allocate(1));
  EXPECT_TRUE(a->can_allocate(0));
  expect_error(a->allocate(), ErrorCode::kExhausted,
               "tenant 'a' requested 1 blocks where 3 of 8 are free and 3 of them reserved by others");
  expect_error(a->allocate(1, greedy), ErrorCode::kExhausted, "tenant 'a'");
  EXPECT_EQ(greedy.size(), 5U);
  EXPECT_TRUE(b->can_allocate(3));
  const std::vector<PhysicalTokenBlock> mine = take(*b, 3);
  expect_error(b->allocate(), ErrorCode::kExhausted, "0 of 8 are free and 0 of them");
  // Freed below the reservation: kept for b. Freed above it: anyone's.
  ASSERT_TRUE(b->free(std::span(mine).first(1)));
  EXPECT_FALSE(a->can_allocate(1));
  EXPECT_TRUE(b->can_allocate(1));
  ASSERT_TRUE(a->free(std::span(greedy).first(1)));
  EXPECT_TRUE(a->can_allocate(1));
  EXPECT_TRUE(b->can_allocate(2));
}

TEST(SharedBlockAllocatorTest, ATenantNeverExceedsItsLimit) {
  const auto allocator = make_shared_allocator(8);
  const auto a = *allocator->join({.name = "a", .reserved = 1, .limit = 2});
  const std::vector<PhysicalTokenBlock> blocks = take(*a, 2);
  expect_error(a->allocate(), ErrorCode::kExhausted, "tenant 'a' requested 1 blocks and uses 2 of its limit of 2");
  EXPECT_EQ(a->used_blocks(), 2U);
  EXPECT_EQ(allocator->free_blocks(), 6U);
  ASSERT_TRUE(a->free(std::span(blocks).first(1)));
  EXPECT_TRUE(a->allocate());
}

TEST(SharedBlockAllocatorTest, ASharedBlockIsChargedOnce) {
  const auto allocator = make_shared_allocator(4);
  const auto a = *allocator->join({.name = "a", .limit = 2});
  const std::vector<PhysicalTokenBlock> blocks = take(*a, 1);
  ASSERT_TRUE(a->retain(blocks));
  ASSERT_TRUE(a->retain(blocks));
  EXPECT_EQ(a->used_blocks(), 1U);
  EXPECT_EQ(*a->free(blocks), 0U);
  EXPECT_EQ(a->used_blocks(), 1U);
  EXPECT_EQ(*a->free(std::vector{blocks[0], blocks[0]}), 1U);
  EXPECT_EQ(a->used_blocks(), 0U);
}

TEST(SharedBlockAllocatorTest, ATenantTouchesOnlyItsOwnBlocks) {
  const auto allocator = make_shared_allocator(4);
  const auto a = *allocator->join({.name = "a"});
  const auto b = *allocator->join({.name = "b"});
  const PhysicalTokenBlock foreign = *a->allocate();
  const PhysicalTokenBlock own = *b->allocate();
  const std::vector<PhysicalTokenBlock> batch{own, foreign};
  constexpr const char* kMessage = "tenant 'b' does not hold block 0 of device 3";
  expect_error(b->free(batch), ErrorCode::kInvalidArgument, kMessage);
  expect_error(b->retain(batch), ErrorCode::kInvalidArgument, kMessage);
  expect_error(b->allocate_if_shared(foreign), ErrorCode::kInvalidArgument, kMessage);
  expect_error(b->free(std::vector{own, own}), ErrorCode::kFailedPrecondition, "block 1 of device 3 is free already");
  expect_error(b->free(std::vector{own, block(9)}), ErrorCode::kInvalidArgument, "block 9 of device 3 does not exist");
  EXPECT_EQ(b->used_blocks(), 1U);
  EXPECT_EQ(allocator->free_blocks(), 2U);
  EXPECT_EQ(*b->free(std::vector{own}), 1U);
  expect_error(b->allocate_if_shared(own), ErrorCode::kFailedPrecondition, "block 1 of device 3 is free already");
  EXPECT_EQ(*a->allocate(), own);
  expect_error(b->free(std::vector{own}), ErrorCode::kInvalidArgument, "tenant 'b' does not hold block 1 of device 3");
}

TEST(SharedBlockAllocatorTest, ASharedBlockGetsANewOneToWriteTo) {
  const auto allocator = make_shared_allocator(2);
  const auto a = *allocator->join({.name = "a"});
  const std::vector<PhysicalTokenBlock> blocks = take(*a, 1);
  EXPECT_FALSE(a->allocate_if_shared(blocks[0])->has_value());
  ASSERT_TRUE(a->retain(blocks));
  EXPECT_EQ(**a->allocate_if_shared(blocks[0]), block(1));
  EXPECT_EQ(a->used_blocks(), 2U);
  expect_error(a->allocate_if_shared(blocks[0]), ErrorCode::kExhausted, "0 of 2 are free");
}

TEST(SharedBlockAllocatorTest, ALeavingTenantGivesEverythingBack) {
  const auto allocator = make_shared_allocator(6);
  auto a = *allocator->join({.name = "a", .reserved = 4});
  const auto b = *allocator->join({.name = "b"});
  const std::vector<PhysicalTokenBlock> blocks = take(*a, 3);
  ASSERT_TRUE(a->retain(blocks));
  ASSERT_TRUE(a->free(std::vector{blocks[1], blocks[1]}));
  const std::vector<PhysicalTokenBlock> others = take(*b, 2);
  EXPECT_FALSE(b->can_allocate(1));
  a.reset();
  EXPECT_EQ(allocator->free_blocks(), 4U);
  EXPECT_TRUE(b->can_allocate(4));
  EXPECT_EQ(b->used_blocks(), 2U);
  EXPECT_EQ(*b->free(others), 2U);
  EXPECT_TRUE(allocator->join({.name = "a", .reserved = 6}));
}

TEST(SharedBlockAllocatorTest, ATenantKeepsTheAllocatorAlive) {
  auto allocator = make_shared_allocator(2);
  const auto a = *allocator->join({.name = "a"});
  allocator.reset();
  EXPECT_EQ(*a->allocate(), block(0));
  EXPECT_EQ(a->allocator().free_blocks(), 1U);
}

}  // namespace
}  // namespace cairn
