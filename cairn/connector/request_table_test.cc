#include "cairn/connector/request_table.h"

#include <gtest/gtest.h>

#include <set>

#include "cairn/connector/slot_testing.h"

namespace cairn {
namespace {

using testing::new_slot;

TEST(RequestTableTest, FindsByHandleAndById) {
  ExternallyManagedDeviceSlot one = new_slot(4);
  ExternallyManagedDeviceSlot two = new_slot(4);
  RequestTable table;
  const RequestHandle a = table.add("a", one);
  const RequestHandle b = table.add(7U, two);
  EXPECT_EQ(table.size(), 2);
  ASSERT_NE(table.get(a), nullptr);
  EXPECT_EQ(table.get(a)->slot, &one);
  EXPECT_EQ(table.get(a)->handle, a);
  EXPECT_EQ(table.get(a)->id, RequestId("a"));
  EXPECT_EQ(table.find(7U), b);
  EXPECT_EQ(table.find("7"), std::nullopt);
}

TEST(RequestTableTest, AHandleIsNeverUsedAgain) {
  ExternallyManagedDeviceSlot slot = new_slot(4);
  RequestTable table;
  std::set<RequestHandle> seen;
  for (int i = 0; i < 1000; ++i) {
    const RequestHandle handle = table.add("a", slot);
    EXPECT_TRUE(seen.insert(handle).second);
    table.get(handle)->is_given_up = true;
    table.remove(handle);
    EXPECT_EQ(table.get(handle), nullptr);
    EXPECT_EQ(table.find("a"), std::nullopt);
  }
  const RequestHandle last = table.add("b", slot);
  EXPECT_FALSE(table.get(last)->is_given_up) << "nothing is left of who had the place before";
  for (const RequestHandle old : seen) {
    EXPECT_EQ(table.get(old), nullptr);
  }
}

TEST(RequestTableTest, WhatWasNeverThereIsNotFound) {
  RequestTable table;
  EXPECT_EQ(table.get(RequestHandle{0}), nullptr);
  EXPECT_EQ(table.get(RequestHandle{~std::uint64_t{0}}), nullptr);
  ExternallyManagedDeviceSlot slot = new_slot(4);
  const RequestHandle a = table.add("a", slot);
  EXPECT_EQ(table.get(RequestHandle{0}), nullptr) << "its place, before it was there";
  EXPECT_EQ(table.get(RequestHandle{static_cast<std::uint64_t>(a) + 1}), nullptr);
}

}  // namespace
}  // namespace cairn
