#include "cairn/connector/save_counts.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(SaveCountsTest, ARequestedBlockIsSavedOrRefusedForAReason) {
  SaveCounts counts;
  counts.asked(21);
  counts.turned_away({ErrorCode::kExhausted, "the queue is full"}, 5);
  counts.turned_away({ErrorCode::kFailedPrecondition, "the link is paused"}, 3);
  counts.turned_away({ErrorCode::kNotFound, "there is no such tier"}, 2);
  OffloadOutcome outcome{.is_below = {true, false, false, true, false}, .error = "the queue is full"};
  outcome.refused[static_cast<std::size_t>(OffloadRefusal::kShed)] = 1;
  outcome.refused[static_cast<std::size_t>(OffloadRefusal::kFailed)] = 2;
  counts.over(outcome);
  OffloadOutcome rejected{.is_below = std::vector<bool>(6), .error = "never seen twice"};
  rejected.refused[static_cast<std::size_t>(OffloadRefusal::kNeverSeenTwice)] = 1;
  rejected.refused[static_cast<std::size_t>(OffloadRefusal::kNoParent)] = 5;
  counts.over(rejected);
  const SchedulerConnector::SaveStatus status = counts.status();
  EXPECT_EQ(status.asked, 21);
  EXPECT_EQ(status.saved, 2);
  EXPECT_EQ(status.shed, 6);
  EXPECT_EQ(status.paused, 3);
  EXPECT_EQ(status.lost, 4);
  EXPECT_EQ(status.too_few_uses, 1);
  EXPECT_EQ(status.no_parent, 5);
  EXPECT_EQ(status.filtered, 0);
}

TEST(SaveCountsTest, InStepSavesAreCountedBesides) {
  SaveCounts counts;
  counts.asked(6);
  counts.asked_in_step(6);
  counts.withdrawn(2);
  EXPECT_EQ(counts.status().in_step, 6);
  EXPECT_EQ(counts.status().withdrawn, 2);
}

}  // namespace
}  // namespace cairn
