// Ranks that are killed and stopped at random moments: nothing hangs, no wrong block is loaded, no block leaks, and the
// leader continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "cairn/memory/memory_testing.h"
#include "tests/ranks/rank_kill_testing.h"
#include "tests/ranks/tiny_engine_testing.h"

namespace cairn::testing {
namespace {

class RankKillTest : public ::testing::TestWithParam<TinyGrid> {
 protected:
  void expect_nothing_lost(TinyEngine& engine) const {
    EXPECT_TRUE(engine.finish_all()) << "a transfer never ends";
    EXPECT_EQ(engine.counts().wrong, 0U);
    EXPECT_EQ(engine.counts().refused, 0U);
    EXPECT_EQ(engine.free_blocks(), kTinyDeviceBlocks);
    const KvBlockManager& manager = engine.connector().manager();
    EXPECT_TRUE(manager.drain(std::chrono::seconds(20)).has_value());
    EXPECT_EQ(manager.host()->counts().active, 0U);
    EXPECT_EQ(manager.host()->counts().pinned, 0U);
    EXPECT_EQ(manager.host()->counts().quarantined, 0U);
  }
  // Steps until so many more blocks were loaded from tiers. The number of steps depends on the machine: a busy one
  // makes many while a save waits.
  static void run_until_loaded(TinyEngine& engine, std::uint64_t blocks) {
    const std::uint64_t wanted = engine.counts().loaded + blocks;
    const TimePoint end = steady_clock().now() + std::chrono::seconds(120);
    while (engine.counts().loaded < wanted && steady_clock().now() < end) {
      ASSERT_TRUE(engine.step());
    }
    EXPECT_GE(engine.counts().loaded, wanted);
  }
  TestFolder folder_;
};

TEST_P(RankKillTest, WithoutKillsBlocksComeFromHostAndDisk) {
  TinyEngine engine(GetParam(), folder_.path(), 1, true);
  run_until_loaded(engine, 300);
  EXPECT_EQ(engine.counts().aborted, 0U);
  expect_nothing_lost(engine);
}

TEST_P(RankKillTest, KilledRanksComeBackAndNothingWrongIsLoaded) {
  const std::uint64_t seed = kill_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed + GetParam().ranks.count());
  TinyEngine engine(GetParam(), folder_.path(), seed, true);
  const int kills = kills_for(GetParam().ranks.count());
  for (int kill = 0; kill < kills; ++kill) {
    for (std::uint64_t left = random() % 8; left > 0; --left) {
      ASSERT_TRUE(engine.step());
    }
    const auto rank = static_cast<std::uint32_t>(random() % GetParam().ranks.count());
    // Before a step, so that the loss is found in the middle of it; or after one, while its copies are in flight.
    engine.ranks().kill(rank);
    if (random() % 2 == 0) {
      EXPECT_FALSE(engine.step());
    } else {
      engine.idle();
    }
    engine.recover(rank);
  }
  run_until_loaded(engine, 50);
  expect_nothing_lost(engine);
}

TEST_P(RankKillTest, ARankThatHangsFailsWhatItTakesPartInAndComesBack) {
  TinyEngine engine(GetParam(), folder_.path(), 5, false);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(engine.step());
  }
  const std::uint32_t rank = GetParam().ranks.count() - 1;
  const std::uint32_t before = engine.connector().rank_status()[rank].generation;
  engine.ranks().stop(rank);
  // The leader detects it by itself, and continues.
  const TimePoint end = steady_clock().now() + std::chrono::seconds(60);
  while (engine.connector().rank_status()[rank].is_there && steady_clock().now() < end) {
    engine.idle();
  }
  EXPECT_FALSE(engine.connector().rank_status()[rank].is_there);
  engine.ranks().go_on(rank);
  // The engine does not wait for the rank: outcomes from before it is ready again still reach it.
  const TimePoint back = steady_clock().now() + std::chrono::seconds(60);
  while (!engine.connector().rank_status()[rank].is_there && steady_clock().now() < back) {
    ASSERT_TRUE(engine.step());
  }
  EXPECT_TRUE(engine.connector().rank_status()[rank].is_there);
  EXPECT_GT(engine.connector().rank_status()[rank].generation, before);
  run_until_loaded(engine, 50);
  expect_nothing_lost(engine);
}

// With fewer heads than tensor ranks, the ranks of a head share their host memory and file.
INSTANTIATE_TEST_SUITE_P(Ranks, RankKillTest,
                         ::testing::Values(TinyGrid{1}, TinyGrid{2}, TinyGrid{4}, TinyGrid{8}, TinyGrid{{2, 2}},
                                           TinyGrid{4, 1}, TinyGrid{{4, 2}, 2}),
                         [](const auto& of) {
                           const TinyGrid& grid = of.param;
                           return "Of" + std::to_string(grid.ranks.tensor) + "x" + std::to_string(grid.ranks.pipeline) +
                                  (grid.heads < grid.ranks.tensor ? "Replicas" : "");
                         });

}  // namespace
}  // namespace cairn::testing
