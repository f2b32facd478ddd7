#include "cairn/connector/save_counts.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(SaveCountsTest, WhatWasAskedIsSavedOrRefusedForAReason) {
  SaveCounts counts;
  counts.asked(15);
  counts.turned_away({ErrorCode::kExhausted, "the queue is full"}, 5);
  counts.turned_away({ErrorCode::kFailedPrecondition, "the link is paused"}, 3);
  counts.turned_away({ErrorCode::kNotFound, "there is no such tier"}, 2);
  counts.over({.is_below = {true, false, false, true, false}, .error = "the queue is full"});
  const SchedulerConnector::SaveStatus status = counts.status();
  EXPECT_EQ(status.asked, 15);
  EXPECT_EQ(status.saved, 2);
  EXPECT_EQ(status.shed, 5);
  EXPECT_EQ(status.paused, 3);
  EXPECT_EQ(status.lost, 5);
}

}  // namespace
}  // namespace cairn
