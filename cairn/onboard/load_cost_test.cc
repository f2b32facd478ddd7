#include "cairn/onboard/load_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

namespace cairn {
namespace {

using Runs = std::vector<LoadRun>;

std::uint32_t worth(const LoadCostModel& model, const Runs& runs, std::uint32_t first_token = 0,
                    std::uint32_t block_size = 16) {
  return model.worth_loading({.runs = runs, .block_size = block_size, .first_token = first_token});
}

// 16 tokens at 1,600 a second: 10 ms a block.
const auto kModel = measured_cost_model(1600);

TEST(LoadCost, EverythingIsEverything) {
  EXPECT_EQ(worth(*load_everything(), {{.blocks = 3, .block_bytes = 1000, .bytes_per_second = 1}, {.blocks = 4}}), 7U);
  EXPECT_EQ(worth(*load_everything(), {}), 0U);
}

TEST(LoadCost, WithoutAPaceEverythingIsLoaded) {
  EXPECT_EQ(worth(*measured_cost_model(0), {{.blocks = 3, .block_bytes = 1000, .bytes_per_second = 1}}), 3U);
}

TEST(LoadCost, FastWaysAreUsedAndSlowOnesAreNot) {
  EXPECT_EQ(worth(*kModel, {{.blocks = 100, .block_bytes = 1000, .bytes_per_second = 1e6}}), 100U);  // 1 ms a block
  EXPECT_EQ(worth(*kModel, {{.blocks = 100, .block_bytes = 1000, .bytes_per_second = 1e4}}), 0U);    // 100 ms
}

TEST(LoadCost, AFastRunIsTakenAndTheSlowOneAfterItIsNot) {
  EXPECT_EQ(worth(*kModel, {{.from = CacheLevel::kG2, .blocks = 10, .block_bytes = 1000, .bytes_per_second = 1e6},
                            {.from = CacheLevel::kG3, .blocks = 10, .block_bytes = 1000, .bytes_per_second = 1e4}}),
            10U);
}

TEST(LoadCost, ASlowRunIsTakenForTheSakeOfAFastOneBehindIt) {
  // 30 ms more for two blocks than computing them, against 90 ms saved by ten.
  const Runs runs = {
      {.from = CacheLevel::kG3, .blocks = 2, .block_bytes = 1000, .bytes_per_second = 4e4},
      {.from = CacheLevel::kG2, .blocks = 10, .block_bytes = 1000, .bytes_per_second = 1e6},
  };
  EXPECT_EQ(worth(*kModel, runs), 12U);
  EXPECT_EQ(
      worth(*kModel, {runs[0], {.from = CacheLevel::kG2, .blocks = 2, .block_bytes = 1000, .bytes_per_second = 1e6}}),
      0U);
}

TEST(LoadCost, WhatIsAheadInTheWayCountsOnceForEachWay) {
  const LoadRun host{.from = CacheLevel::kG2,
                     .blocks = 4,
                     .block_bytes = 1000,
                     .bytes_per_second = 1e6,
                     .bytes_ahead = 50'000};  // 50 ms ahead; each block saves 9 ms
  EXPECT_EQ(worth(*kModel, {host}), 0U);
  EXPECT_EQ(worth(*kModel, {host, host}), 8U);
  LoadRun disk = host;
  disk.from = CacheLevel::kG3;
  EXPECT_EQ(worth(*kModel, {host, disk}), 0U);
}

TEST(LoadCost, AnUnknownWayIsTried) {
  EXPECT_EQ(
      worth(*kModel, {{.blocks = 5, .block_bytes = 1'000'000'000, .bytes_per_second = 0, .bytes_ahead = 1'000'000}}),
      5U);
}

TEST(LoadCost, OfEqualsTheLarger) {
  // 16 tokens at 16 a second and 1000 bytes at 1000 a second take a second each; contexts of 0 only.
  const auto model = measured_cost_model(16);
  EXPECT_EQ(worth(*model, {{.blocks = 1, .block_bytes = 1000, .bytes_per_second = 1000}}), 1U);
}

TEST(LoadCost, FarIntoTheContextLoadingIsWorthMore) {
  // 15 ms a block to load: more than 10 ms at the beginning, less than 20 ms at 65,536 tokens.
  const Runs runs = {{.blocks = 10, .block_bytes = 1500, .bytes_per_second = 1e5}};
  EXPECT_EQ(worth(*kModel, runs, 0), 0U);
  EXPECT_EQ(worth(*kModel, runs, 65536), 10U);
}

// The report of a load from disk that took 40 s where computing took 0.9 s.
TEST(LoadCost, DoesNotLoadForLongerThanComputingTakes) {
  const double engine = 32'000 / 0.9;  // tokens a second
  const LoadRun disk{
      .from = CacheLevel::kG3, .blocks = 2000, .block_bytes = 2'000'000, .bytes_per_second = 2000 * 2e6 / 40.0};
  EXPECT_EQ(worth(*measured_cost_model(engine), {disk}), 0U);
}

// What the time to the first token is, said another way: every number of blocks is tried.
TEST(LoadCost, FindsTheBestOfAllNumbers) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Runs runs;
    const auto count = 1 + random() % 5;
    for (std::size_t i = 0; i < count; ++i) {
      runs.push_back({.from = random() % 2 == 0 ? CacheLevel::kG2 : CacheLevel::kG3,
                      .blocks = static_cast<std::uint32_t>(random() % 30),
                      .block_bytes = 1000 + random() % 1000,
                      .bytes_per_second = random() % 8 == 0 ? 0.0 : static_cast<double>(20'000 + random() % 400'000),
                      .bytes_ahead = random() % 3 == 0 ? random() % 100'000 : 0});
    }
    const std::uint32_t first_token = static_cast<std::uint32_t>(random() % 100'000);
    std::uint32_t total = 0;
    for (const LoadRun& run : runs) {
      total += run.blocks;
    }
    const auto seconds = [&](std::uint32_t loaded) {
      double time = 0;
      std::set<CacheLevel> used;
      std::uint32_t at = 0;
      for (const LoadRun& run : runs) {
        for (std::uint32_t i = 0; i < run.blocks; ++i, ++at) {
          if (at >= loaded) {
            time += 16 / 1600.0 * (1 + (first_token + at * 16.0) / 65536);
          } else if (run.bytes_per_second > 0) {
            time += static_cast<double>(run.block_bytes) / run.bytes_per_second;
            time += used.insert(run.from).second ? static_cast<double>(run.bytes_ahead) / run.bytes_per_second : 0;
          }
        }
      }
      return time;
    };
    double least = std::numeric_limits<double>::max();
    for (std::uint32_t n = 0; n <= total; ++n) {
      least = std::min(least, seconds(n));
    }
    EXPECT_NEAR(seconds(worth(*kModel, runs, first_token)), least, 1e-9) << "round " << round;
  }
}

}  // namespace
}  // namespace cairn
