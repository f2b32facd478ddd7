#include "cairn/allocator/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kBlockSize = 16;

std::unique_ptr<BlockManager> make_manager(std::uint32_t total_blocks) {
  return *BlockManager::create(total_blocks, kBlockSize, 0);
}

std::shared_ptr<SharedBlockAllocator> make_allocator(std::uint32_t total_blocks) {
  return *SharedBlockAllocator::create(total_blocks, kBlockSize, 0);
}

std::vector<std::uint32_t> numbers_of(const BlockManager& manager, std::uint64_t sequence_id) {
  std::vector<std::uint32_t> numbers;
  manager.visit_block_table(sequence_id, [&numbers](const BlockTable& table) {
    for (const PhysicalTokenBlock& block : table.physical_blocks()) {
      numbers.push_back(block.block_number);
    }
  });
  return numbers;
}

void expect_error(const auto& result, ErrorCode code, const char* part) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code);
  EXPECT_THAT(result.error().message, HasSubstr(part));
}

TEST(BlockManagerTest, IsCreatedOverAPoolOfItsOwn) {
  const auto manager = make_manager(10);
  EXPECT_EQ(manager->total_blocks(), 10U);
  EXPECT_EQ(manager->free_blocks(), 10U);
  EXPECT_EQ(manager->block_size(), kBlockSize);
  EXPECT_EQ(manager->used_blocks(), 0U);
  expect_error(BlockManager::create(0, kBlockSize, 0), ErrorCode::kInvalidArgument, "0 blocks");
  expect_error(BlockManager::create(10, 0, 0), ErrorCode::kInvalidArgument, "0 tokens");
}

TEST(BlockManagerTest, AllocatesBlocksInOrderToTheEndOfASequence) {
  const auto manager = *BlockManager::create(4, kBlockSize, 2);
  EXPECT_EQ(*manager->allocate(1), (PhysicalTokenBlock{0, kBlockSize, 2}));
  EXPECT_EQ(*manager->allocate(2), (PhysicalTokenBlock{1, kBlockSize, 2}));
  EXPECT_EQ(*manager->allocate(1), (PhysicalTokenBlock{2, kBlockSize, 2}));
  EXPECT_THAT(numbers_of(*manager, 1), ElementsAre(0, 2));
  EXPECT_EQ(manager->blocks_for_sequence(1), 2U);
  EXPECT_EQ(manager->blocks_for_sequence(2), 1U);
  EXPECT_EQ(manager->free_blocks(), 1U);
  EXPECT_EQ(manager->total_blocks(), 4U);
}

TEST(BlockManagerTest, AllocatesABatchWholeOrNotAtAll) {
  const auto manager = make_manager(5);
  EXPECT_EQ(*manager->allocate(1, 2), 0U);
  EXPECT_EQ(*manager->allocate(1, 1), 2U);
  expect_error(manager->allocate(1, 3), ErrorCode::kExhausted, "requested 3 blocks where 2 of 5 are free");
  expect_error(manager->allocate(2, 3), ErrorCode::kExhausted, "requested 3 blocks");
  EXPECT_THAT(numbers_of(*manager, 1), ElementsAre(0, 1, 2));
  EXPECT_FALSE(manager->get_block_table(2).has_value());
  EXPECT_EQ(manager->free_blocks(), 2U);
}

TEST(BlockManagerTest, ZeroBlocksDoNothing) {
  const auto manager = make_manager(5);
  EXPECT_EQ(*manager->allocate(1, 0), 0U);
  EXPECT_FALSE(manager->get_block_table(1).has_value());
  ASSERT_TRUE(manager->allocate(1, 2));
  EXPECT_EQ(*manager->allocate(1, 0), 2U);
  EXPECT_EQ(manager->blocks_for_sequence(1), 2U);
}

TEST(BlockManagerTest, AnExhaustedPoolMakesNoSequence) {
  const auto manager = make_manager(1);
  ASSERT_TRUE(manager->allocate(1));
  expect_error(manager->allocate(2), ErrorCode::kExhausted, "0 of 1 are free");
  EXPECT_FALSE(manager->get_block_table(2).has_value());
  EXPECT_EQ(manager->blocks_for_sequence(2), 0U);
}

TEST(BlockManagerTest, FreedBlocksAreReusedLastFirst) {
  const auto manager = make_manager(5);
  ASSERT_TRUE(manager->allocate(1, 3));
  ASSERT_TRUE(manager->allocate(2));
  manager->free(1);
  EXPECT_FALSE(manager->get_block_table(1).has_value());
  EXPECT_EQ(manager->free_blocks(), 4U);
  ASSERT_TRUE(manager->allocate(3, 4));
  EXPECT_THAT(numbers_of(*manager, 3), ElementsAre(2, 1, 0, 4));
}

TEST(BlockManagerTest, FreeSaysHowManyBlocksReturned) {
  const auto manager = make_manager(5);
  ASSERT_TRUE(manager->allocate(1, 3));
  EXPECT_EQ(manager->free_returning_count(1), 3U);
  EXPECT_EQ(manager->free_returning_count(1), 0U);
  EXPECT_EQ(manager->free_blocks(), 5U);
}

TEST(BlockManagerTest, FreeingAnUnknownSequenceIsHarmless) {
  const auto manager = make_manager(5);
  ASSERT_TRUE(manager->allocate(1));
  manager->free(99);
  EXPECT_EQ(manager->free_returning_count(99), 0U);
  EXPECT_EQ(manager->free_blocks(), 4U);
  EXPECT_EQ(manager->blocks_for_sequence(1), 1U);
}

TEST(BlockManagerTest, CanAllocateUpToWhatIsFree) {
  const auto manager = make_manager(3);
  EXPECT_TRUE(manager->can_allocate(3));
  EXPECT_FALSE(manager->can_allocate(4));
  ASSERT_TRUE(manager->allocate(1));
  EXPECT_TRUE(manager->can_allocate(2));
  EXPECT_FALSE(manager->can_allocate(3));
  EXPECT_TRUE(manager->can_allocate(0));
}

TEST(BlockManagerTest, ATableIsCopiedOrVisited) {
  const auto manager = make_manager(3);
  EXPECT_FALSE(manager->get_block_table(1).has_value());
  EXPECT_FALSE(manager->visit_block_table(1, [](const BlockTable&) { ADD_FAILURE(); }));
  ASSERT_TRUE(manager->allocate(1));
  const std::optional<BlockTable> table = manager->get_block_table(1);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->block_size(), kBlockSize);
  ASSERT_TRUE(manager->allocate(1));
  EXPECT_THAT(table->physical_blocks(), ElementsAre(PhysicalTokenBlock{0, kBlockSize, 0}));
  EXPECT_TRUE(manager->visit_block_table(1, [](const BlockTable& now) { EXPECT_EQ(now.size(), 2U); }));
}

TEST(BlockManagerTest, AForkSharesAllBlocksAndCostsNone) {
  const auto manager = make_manager(4);
  ASSERT_TRUE(manager->allocate(1, 3));
  ASSERT_TRUE(manager->fork(1, 2));
  EXPECT_EQ(numbers_of(*manager, 2), numbers_of(*manager, 1));
  EXPECT_EQ(manager->free_blocks(), 1U);
  EXPECT_EQ(manager->used_blocks(), 3U);
  EXPECT_EQ(manager->free_returning_count(1), 0U);
  EXPECT_THAT(numbers_of(*manager, 2), ElementsAre(0, 1, 2));
  EXPECT_EQ(manager->free_returning_count(2), 3U);
  EXPECT_EQ(manager->free_blocks(), 4U);
}

TEST(BlockManagerTest, BlocksAfterAForkAreTheSequencesOwn) {
  const auto manager = make_manager(4);
  ASSERT_TRUE(manager->allocate(1, 2));
  ASSERT_TRUE(manager->fork(1, 2));
  ASSERT_TRUE(manager->allocate(1));
  ASSERT_TRUE(manager->allocate(2));
  EXPECT_THAT(numbers_of(*manager, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers_of(*manager, 2), ElementsAre(0, 1, 3));
  EXPECT_EQ(manager->free_returning_count(2), 1U);
}

TEST(BlockManagerTest, AForkNeedsAParentAndANewChild) {
  const auto manager = make_manager(4);
  ASSERT_TRUE(manager->allocate(1, 2));
  ASSERT_TRUE(manager->allocate(2));
  expect_error(manager->fork(7, 8), ErrorCode::kNotFound, "sequence 7 to fork into 8 does not exist");
  expect_error(manager->fork(1, 2), ErrorCode::kAlreadyExists, "sequence 2 to fork from 1 exists");
  expect_error(manager->fork(1, 1), ErrorCode::kAlreadyExists, "sequence 1 to fork from 1 exists");
  EXPECT_FALSE(manager->get_block_table(8).has_value());
  EXPECT_THAT(numbers_of(*manager, 2), ElementsAre(2));
  EXPECT_EQ(manager->free_returning_count(1), 2U);  // no reference stayed behind
}

TEST(BlockManagerTest, AnUnsharedBlockIsWrittenInPlace) {
  const auto manager = make_manager(2);
  ASSERT_TRUE(manager->allocate(1, 2));
  const Result<WritableBlock> writable = manager->make_writable(1, 1);
  ASSERT_TRUE(writable);
  EXPECT_EQ(writable->block.block_number, 1U);
  EXPECT_FALSE(writable->copy_from.has_value());
  EXPECT_THAT(numbers_of(*manager, 1), ElementsAre(0, 1));
}

TEST(BlockManagerTest, ASharedTailIsCopiedOnWrite) {
  const auto manager = make_manager(4);
  ASSERT_TRUE(manager->allocate(1, 2));
  ASSERT_TRUE(manager->fork(1, 2));
  {
    const Result<WritableBlock> writable = manager->make_writable(2, 1);
    ASSERT_TRUE(writable);
    EXPECT_EQ(writable->block.block_number, 2U);
    ASSERT_TRUE(writable->copy_from.has_value());
    EXPECT_EQ(writable->copy_from->block().block_number, 1U);
  }
  EXPECT_THAT(numbers_of(*manager, 1), ElementsAre(0, 1));
  EXPECT_THAT(numbers_of(*manager, 2), ElementsAre(0, 2));
  // The copy is finished and the tail is the parent's alone.
  EXPECT_FALSE(manager->make_writable(1, 1)->copy_from.has_value());
  EXPECT_FALSE(manager->make_writable(2, 1)->copy_from.has_value());
  EXPECT_EQ(manager->free_returning_count(1), 1U);
  EXPECT_EQ(manager->free_returning_count(2), 2U);
}

TEST(BlockManagerTest, TheSourceOfACopyIsNeitherWrittenNorReusedBeforeItEnds) {
  const auto manager = make_manager(4);
  ASSERT_TRUE(manager->allocate(1));
  ASSERT_TRUE(manager->fork(1, 2));
  Result<WritableBlock> first = manager->make_writable(2, 0);
  ASSERT_TRUE(first->copy_from.has_value());
  // The parent is the only sequence with block 0 left, and still gets another one to write to.
  Result<WritableBlock> second = manager->make_writable(1, 0);
  ASSERT_TRUE(second->copy_from.has_value());
  EXPECT_EQ(second->block.block_number, 2U);
  EXPECT_EQ(manager->free_returning_count(1), 1U);
  EXPECT_EQ(manager->free_returning_count(2), 1U);
  EXPECT_EQ(manager->free_blocks(), 3U);
  first->copy_from.reset();
  EXPECT_EQ(manager->free_blocks(), 3U);
  second->copy_from.reset();
  EXPECT_EQ(manager->free_blocks(), 4U);
}

TEST(BlockManagerTest, AHoldMovesWithItsReference) {
  const auto manager = make_manager(6);
  ASSERT_TRUE(manager->allocate(1, 2));
  ASSERT_TRUE(manager->fork(1, 2));
  BlockHold hold = std::move(*manager->make_writable(2, 0)->copy_from);
  BlockHold other = std::move(*manager->make_writable(2, 1)->copy_from);
  manager->free(1);
  manager->free(2);
  EXPECT_EQ(manager->used_blocks(), 2U);
  hold = std::move(other);  // the first copy is finished
  EXPECT_EQ(hold.block().block_number, 1U);
  EXPECT_EQ(manager->used_blocks(), 1U);
}

TEST(BlockManagerTest, ACopyWithoutABlockLeavesTheTable) {
  const auto manager = make_manager(2);
  ASSERT_TRUE(manager->allocate(1, 2));
  ASSERT_TRUE(manager->fork(1, 2));
  expect_error(manager->make_writable(2, 1), ErrorCode::kExhausted, "requested 1 blocks where 0 of 2 are free");
  EXPECT_THAT(numbers_of(*manager, 2), ElementsAre(0, 1));
  manager->free(1);
  EXPECT_FALSE(manager->make_writable(2, 1)->copy_from.has_value());
}

TEST(BlockManagerTest, OnlyBlocksOfATableAreWritable) {
  const auto manager = make_manager(2);
  ASSERT_TRUE(manager->allocate(1));
  expect_error(manager->make_writable(5, 0), ErrorCode::kNotFound, "sequence 5 to write to does not exist");
  expect_error(manager->make_writable(1, 1), ErrorCode::kOutOfRange, "logical block 1 of sequence 1 is past its 1");
  EXPECT_EQ(manager->free_blocks(), 1U);
}

TEST(SharedBlockManagerTest, NeedsAnAllocatorAndAFittingShare) {
  expect_error(BlockManager::create_shared(nullptr, {.name = "a"}), ErrorCode::kInvalidArgument,
               "tenant 'a' was given no allocator");
  expect_error(BlockManager::create_shared(make_allocator(4), {.name = "a", .reserved = 2, .limit = 1}),
               ErrorCode::kInvalidArgument, "limited to 1");
}

TEST(SharedBlockManagerTest, BlocksFreedByOneAreAtOnceTheOthers) {
  const auto allocator = make_allocator(4);
  const auto a = *BlockManager::create_shared(allocator, {.name = "a"});
  const auto b = *BlockManager::create_shared(allocator, {.name = "b"});
  EXPECT_EQ(b->block_size(), kBlockSize);
  ASSERT_TRUE(a->allocate(1, 3));
  EXPECT_EQ(b->free_blocks(), 1U);
  EXPECT_EQ(b->total_blocks(), 4U);
  EXPECT_EQ(b->used_blocks(), 0U);
  EXPECT_FALSE(b->can_allocate(2));
  EXPECT_FALSE(b->allocate(1, 2));
  a->free(1);
  EXPECT_TRUE(b->can_allocate(4));
  ASSERT_TRUE(b->allocate(1, 4));  // a sequence 1 of its own
  EXPECT_THAT(numbers_of(*b, 1), ElementsAre(2, 1, 0, 3));
  EXPECT_EQ(a->blocks_for_sequence(1), 0U);
  a->free(1);
  EXPECT_EQ(allocator->free_blocks(), 0U);
}

TEST(SharedBlockManagerTest, OneCannotStarveAnother) {
  const auto allocator = make_allocator(6);
  const auto a = *BlockManager::create_shared(allocator, {.name = "a", .limit = 5});
  const auto b = *BlockManager::create_shared(allocator, {.name = "b", .reserved = 2});
  EXPECT_FALSE(a->can_allocate(5));
  EXPECT_TRUE(a->can_allocate(4));
  ASSERT_TRUE(a->allocate(1, 4));
  EXPECT_EQ(a->free_blocks(), 2U);
  expect_error(a->allocate(1), ErrorCode::kExhausted, "2 of 6 are free and 2 of them reserved by others");
  EXPECT_TRUE(b->allocate(1, 2));
}

TEST(SharedBlockManagerTest, ADestroyedManagerGivesEverythingBack) {
  const auto allocator = make_allocator(6);
  auto a = *BlockManager::create_shared(allocator, {.name = "a", .reserved = 6});
  ASSERT_TRUE(a->allocate(1, 3));
  ASSERT_TRUE(a->fork(1, 2));
  ASSERT_TRUE(a->allocate(2));
  a.reset();
  EXPECT_EQ(allocator->free_blocks(), 6U);
  EXPECT_TRUE(BlockManager::create_shared(allocator, {.name = "a", .reserved = 6}));
}

TEST(SharedBlockManagerTest, AHoldOutlivesItsManager) {
  const auto allocator = make_allocator(6);
  auto a = *BlockManager::create_shared(allocator, {.name = "a"});
  ASSERT_TRUE(a->allocate(1, 3));
  ASSERT_TRUE(a->fork(1, 2));
  WritableBlock writable = *a->make_writable(2, 0);
  a.reset();
  EXPECT_EQ(allocator->free_blocks(), 5U);  // all but the source of the copy
  EXPECT_FALSE(BlockManager::create_shared(allocator, {.name = "a"}));
  writable.copy_from.reset();
  EXPECT_EQ(allocator->free_blocks(), 6U);
  EXPECT_TRUE(BlockManager::create_shared(allocator, {.name = "a"}));
}

}  // namespace
}  // namespace cairn
