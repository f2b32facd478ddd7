#include "examples/engine/device_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DevicePoolTest, SharesCachedBlocks) {
  DevicePool pool(4);
  const auto blocks = *pool.allocate(2);
  pool.cache(blocks[0], 100);
  pool.cache(blocks[1], 101);
  const std::vector<PrefixHash> wanted = {100, 101, 102};
  EXPECT_EQ(pool.take_cached(wanted), blocks);
  pool.release(blocks);
  EXPECT_EQ(pool.free_blocks(), 2U) << "the second user still has them";
  pool.release(blocks);
  EXPECT_EQ(pool.free_blocks(), 4U);
  EXPECT_EQ(pool.take_cached(wanted), blocks) << "free blocks stay cached";
}

TEST(DevicePoolTest, TakesNothingAfterAGap) {
  DevicePool pool(4);
  const auto blocks = *pool.allocate(2);
  pool.cache(blocks[0], 100);
  pool.cache(blocks[1], 102);
  EXPECT_THAT(pool.take_cached(std::vector<PrefixHash>{100, 101, 102}), ElementsAre(blocks[0]));
}

TEST(DevicePoolTest, UsesUncachedBlocksFirstThenTheEndsOfThoseFreedLongestAgo) {
  DevicePool pool(5);
  const auto older = *pool.allocate(2);
  const auto newer = *pool.allocate(2);
  pool.cache(older[0], 1);
  pool.cache(older[1], 2);
  pool.cache(newer[0], 3);
  pool.release(older);
  pool.release(newer);  // its second block has no hash
  EXPECT_THAT(*pool.allocate(5), ElementsAre(newer[1], 4, older[1], older[0], newer[0]));
  EXPECT_THAT(pool.take_cached(std::vector<PrefixHash>{1}), IsEmpty());
}

TEST(DevicePoolTest, GivesAllOrNothing) {
  DevicePool pool(3);
  EXPECT_FALSE(pool.allocate(4));
  EXPECT_EQ(pool.free_blocks(), 3U);
}

TEST(DevicePoolTest, KeepsOneOfTwoEqualBlocks) {
  DevicePool pool(2);
  const auto blocks = *pool.allocate(2);
  pool.cache(blocks[0], 7);
  pool.cache(blocks[1], 7);
  pool.release(std::span(blocks).first(1));
  EXPECT_THAT(pool.take_cached(std::vector<PrefixHash>{7}), ElementsAre(blocks[0]));
}

TEST(DevicePoolTest, Forgets) {
  DevicePool pool(2);
  const auto blocks = *pool.allocate(2);
  pool.cache(blocks[0], 7);
  pool.cache(blocks[1], 8);
  pool.release(std::span(blocks).first(1));
  pool.forget_all();
  EXPECT_THAT(pool.take_cached(std::vector<PrefixHash>{7, 8}), IsEmpty());
  pool.release(std::span(blocks).last(1));
  EXPECT_EQ(pool.free_blocks(), 2U);
}

}  // namespace
}  // namespace cairn::engine
