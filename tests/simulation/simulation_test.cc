// A thousand simulated managers; `cairn_sim` runs any number of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>

#include "cairn/memory/memory_testing.h"
#include "tests/simulation/grid_world_testing.h"
#include "tests/simulation/restart_world_testing.h"
#include "tests/simulation/world_testing.h"

namespace cairn::testing {
namespace {

class SimulationTest : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SimulationTest, KeepsItsInvariants) {
  constexpr std::uint64_t kSeeds = 100;
  const TestFolder folder;
  WorldCounts counts;
  for (std::uint64_t seed = GetParam() * kSeeds + 1; seed <= (GetParam() + 1) * kSeeds; ++seed) {
    std::filesystem::remove(folder.in("blocks"));
    World world({.seed = seed, .folder = folder.path()});
    EXPECT_EQ(world.run(), "") << "cairn_sim --first " << seed << " --seeds 1 --verbose shows it";
    counts += world.counts();
  }
  // Without these events the invariants would hold trivially.
  EXPECT_GT(counts.from_below, 100U);
  EXPECT_GT(counts.copied_down, 1000U);
  EXPECT_GT(counts.mismatches, 0U);
  EXPECT_GT(counts.expired, 0U);
  EXPECT_GT(counts.tiers_out, 0U);
  EXPECT_GT(counts.restarts, 0U);
  EXPECT_GT(counts.files_damaged, 0U);
  EXPECT_GT(counts.scrubbed, 0U);
  EXPECT_GT(counts.kills, 0U);
  EXPECT_GT(counts.fences, 100U);
  EXPECT_GT(counts.fences_in_copies, 10U);
  EXPECT_GT(counts.fenced_blocks, 10U);
  EXPECT_GT(counts.fenced_loads, 10U);
  EXPECT_GT(counts.fenced_in_use, 10U);
  EXPECT_GT(counts.fenced_private, 0U);
}

INSTANTIATE_TEST_SUITE_P(Hundreds, SimulationTest, ::testing::Range<std::uint64_t>(0, 10));

TEST(SimulationTest, RestartsLeaveNothingStaleBehindAndTheCacheComesBack) {
  RestartCounts counts;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    RestartWorld world({.seed = seed});
    EXPECT_EQ(world.run(), "") << "cairn_sim --scenario restarts --first " << seed << " --seeds 1 --verbose shows it";
    counts += world.counts();
  }
  EXPECT_GT(counts.schedulers, 300U);
  EXPECT_GT(counts.ranks, 100U);
  EXPECT_GT(counts.binds, 3000U);
  EXPECT_GT(counts.refused, 10U);
  EXPECT_GT(counts.retried, 10U);
  EXPECT_GT(counts.saved, 1000U);
  EXPECT_GT(counts.failed, 1000U);
  EXPECT_GT(counts.events_failed, 10U);
}

TEST(SimulationTest, GridsOfRanksMoveTheRightBytes) {
  GridCounts counts;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const TestFolder folder;
    GridWorld world({.seed = seed, .folder = folder.path()});
    EXPECT_EQ(world.run(), "") << "cairn_sim --scenario grids --first " << seed << " --seeds 1 --verbose shows it";
    counts += world.counts();
  }
  EXPECT_GT(counts.moved, 500U);
  EXPECT_GT(counts.failed, 50U);
  EXPECT_GT(counts.stale, 10U);
  EXPECT_GT(counts.struck, 50U);
  EXPECT_GT(counts.in_flight, 50U);
  EXPECT_GT(counts.reshards, 20U);
  EXPECT_GT(counts.replicas, 5U);
  EXPECT_GT(counts.stages, 5U);
}

// The same seed gives the same run, so that failures can be reproduced.
TEST(SimulationTest, ASeedReplaysExactly) {
  const TestFolder folder;
  std::string logs[2];
  for (std::string& log : logs) {
    std::filesystem::remove(folder.in("blocks"));
    std::ostringstream out;
    World world({.seed = 7, .folder = folder.path(), .log = &out});
    EXPECT_EQ(world.run(), "");
    log = out.str();
  }
  EXPECT_GT(logs[0].size(), 1000U);
  EXPECT_EQ(logs[0], logs[1]);
}

}  // namespace
}  // namespace cairn::testing
