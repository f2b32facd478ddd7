// The pure decisions about copies down and loads up.
#include "cairn/sim/offload_decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "cairn/sim/load_plan.h"

namespace cairn::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(OffloadDecisionTest, CopiesBlocksThatAreNeitherResidentNorExpected) {
  EXPECT_EQ(decide_offload({}), OffloadVerdict::kCopy);
  EXPECT_EQ(decide_offload({.resident = true}), OffloadVerdict::kResident);
  EXPECT_EQ(decide_offload({.expected = true}), OffloadVerdict::kExpected);
}

TEST(LoadPlanTest, TakesEachBlockFromTheNearestTierUpToTheFirstHole) {
  const std::vector<std::optional<TierIndex>> nearest{0, 2, 0, 1, std::nullopt, 0};
  const LoadPlan plan = plan_load(nearest.size(), [&](std::size_t i) { return nearest[i]; });
  EXPECT_THAT(plan.source, ElementsAre(0, 2, 0, 1));
  EXPECT_EQ(plan.blocks(), 4U);
  EXPECT_EQ(plan.blocks_from(0), 2U);
  EXPECT_EQ(plan.blocks_from(1), 1U);
  EXPECT_EQ(plan.blocks_from(3), 0U);
  EXPECT_THAT(plan_load(0, [&](std::size_t i) { return nearest[i]; }).source, IsEmpty());
}

}  // namespace
}  // namespace cairn::sim
