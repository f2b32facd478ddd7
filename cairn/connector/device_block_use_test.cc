#include "cairn/connector/device_block_use.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

std::vector<BlockId> blocks(std::initializer_list<std::uint32_t> numbers) {
  std::vector<BlockId> all;
  for (const std::uint32_t number : numbers) {
    all.push_back(BlockId{number});
  }
  return all;
}

TEST(DeviceBlockUseTest, ABlockIsInATableOnce) {
  DeviceBlockUse use(8);
  EXPECT_EQ(use.add(blocks({4, 5, 4})), BlockId{4});
  EXPECT_EQ(use.add(blocks({4, 5})), std::nullopt) << "a call that fails adds nothing";
  EXPECT_EQ(use.find_conflict(blocks({4, 5}), 0), std::nullopt);
  EXPECT_EQ(use.add(blocks({6, 7})), std::nullopt);
}

TEST(DeviceBlockUseTest, ABlockThatIsWrittenHasOneRequest) {
  DeviceBlockUse use(8);
  ASSERT_EQ(use.add(blocks({0, 1, 2})), std::nullopt);
  ASSERT_EQ(use.add(blocks({3, 2})), std::nullopt);
  EXPECT_EQ(use.find_conflict(blocks({3, 2}), 0), BlockId{2});
  use.remove(blocks({0, 1, 2}));
  EXPECT_EQ(use.find_conflict(blocks({3, 2}), 0), std::nullopt) << "the other request was preempted";
}

TEST(DeviceBlockUseTest, WhatTheEngineHadIsSharedAndNotWritten) {
  DeviceBlockUse use(8);
  ASSERT_EQ(use.add(blocks({0, 1})), std::nullopt);
  ASSERT_EQ(use.add(blocks({0, 1, 2})), std::nullopt);
  EXPECT_EQ(use.find_conflict(blocks({0, 1, 2}), 2), std::nullopt) << "shared with a running request";
  EXPECT_EQ(use.find_conflict(blocks({0, 1, 2}), 1), BlockId{1});
}

TEST(DeviceBlockUseTest, ABlockThatIsBeingLoadedIsNotSharedYet) {
  DeviceBlockUse use(8);
  ASSERT_EQ(use.add(blocks({0, 1})), std::nullopt);
  use.begin_load(blocks({1}));
  EXPECT_EQ(use.find_conflict(blocks({0, 1}), 0), std::nullopt) << "it is the request's own load";
  ASSERT_EQ(use.add(blocks({0, 1})), std::nullopt);
  EXPECT_EQ(use.find_conflict(blocks({0, 1}), 2), BlockId{1});
  use.end_load(blocks({1}));
  EXPECT_EQ(use.find_conflict(blocks({0, 1}), 2), std::nullopt);
}

}  // namespace
}  // namespace cairn
