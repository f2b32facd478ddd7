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

TEST(LoadCost, AnUnknownLinkIsMeasuredAndNotMore) {
  const LoadRun unknown{.from = CacheLevel::kG3, .blocks = 5, .block_bytes = 1'000'000'000};
  EXPECT_EQ(worth(*kModel, {unknown}), 0U) << "something is ahead that measures it";
  LoadRun probe = unknown;
  probe.probe_blocks = 2;
  EXPECT_EQ(worth(*kModel, {probe}), 2U);
  probe.probe_blocks = 9;
  EXPECT_EQ(worth(*kModel, {probe}), 5U);
  const LoadRun host{.blocks = 10, .block_bytes = 1000, .bytes_per_second = 1e6};
  EXPECT_EQ(worth(*kModel, {host, probe, host}), 15U);
  EXPECT_EQ(worth(*kModel, {host, unknown, host}), 10U);
  LoadRun slow = host;
  slow.bytes_per_second = 1e3;
  EXPECT_EQ(worth(*kModel, {slow, probe}), 0U) << "the load does not get there";
}

TEST(LoadCost, AnOldSpeedIsMeasuredAgain) {
  LoadRun slow{.from = CacheLevel::kG3, .blocks = 50, .block_bytes = 1000, .bytes_per_second = 1e3};
  EXPECT_EQ(worth(*kModel, {slow}), 0U);
  slow.probe_blocks = 3;
  EXPECT_EQ(worth(*kModel, {slow}), 3U);
  LoadRun fast = slow;
  fast.bytes_per_second = 1e6;
  EXPECT_EQ(worth(*kModel, {fast}), 50U);
}

TEST(LoadCost, TheIterationInProgressDelaysALoadedRequest) {
  // Four blocks save 9 ms each.
  const Runs runs = {{.blocks = 4, .block_bytes = 1000, .bytes_per_second = 1e6}};
  PrefillEstimate prefill = PrefillEstimate::constant(1600);
  prefill.seconds_until_next = 0.03;
  EXPECT_EQ(blocks_worth_loading(prefill, {.runs = runs, .block_size = 16, .engine_is_busy = true}), 4U);
  prefill.seconds_until_next = 0.05;
  EXPECT_EQ(blocks_worth_loading(prefill, {.runs = runs, .block_size = 16, .engine_is_busy = true}), 0U);
  EXPECT_EQ(blocks_worth_loading(prefill, {.runs = runs, .block_size = 16}), 4U);
}

TEST(LoadCost, WhatWasLearnedIsUsedWithCaution) {
  // 10 ms a block to compute, 9.5 ms to load.
  const Runs runs = {{.blocks = 4, .block_bytes = 1000, .bytes_per_second = 1000 / 0.0095}};
  PrefillEstimate prefill = PrefillEstimate::constant(1600);
  EXPECT_EQ(blocks_worth_loading(prefill, {.runs = runs, .block_size = 16}), 4U);
  prefill.caution = 1.1;
  EXPECT_EQ(blocks_worth_loading(prefill, {.runs = runs, .block_size = 16}), 0U);
}

TEST(LoadCost, SavesIterations) {
  // Iterations of 64 tokens take 1 s each, tokens nothing: of 161 tokens, loading 4 or 8 of 10 blocks saves one or two.
  const PrefillEstimate prefill{.seconds_per_token = 1e-9, .seconds_per_iteration = 1, .tokens_per_iteration = 64};
  const auto loaded = [&](double seconds_a_block, std::uint32_t total) {
    const Runs runs = {{.blocks = 10, .block_bytes = 1000, .bytes_per_second = 1000 / seconds_a_block}};
    return blocks_worth_loading(prefill, {.runs = runs, .block_size = 16, .total_tokens = total});
  };
  EXPECT_EQ(loaded(1, 161), 0U);
  EXPECT_EQ(loaded(0.2, 161), 7U) << "64 tokens are left: one iteration";
  EXPECT_EQ(loaded(0.2, 200), 9U);
  EXPECT_EQ(loaded(0.1, 225), 7U) << "the last three blocks save nothing";
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

// The time to the first token by trying every number of blocks.
TEST(LoadCost, FindsTheBestOfAllNumbers) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Runs runs;
    const auto count = 1 + random() % 5;
    for (std::size_t i = 0; i < count; ++i) {
      runs.push_back({.from = random() % 2 == 0 ? CacheLevel::kG2 : CacheLevel::kG3,
                      .blocks = static_cast<std::uint32_t>(random() % 30),
                      .block_bytes = 1000 + random() % 1000,
                      .bytes_per_second = static_cast<double>(20'000 + random() % 400'000),
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

// The same with iterations, latencies and a busy engine.
TEST(LoadCost, FindsTheBestOfAllNumbersWithIterations) {
  std::mt19937_64 random(8);
  const auto below = [&random](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    const PrefillEstimate prefill{.seconds_per_token = 1e-5 * (1 + below(20)),
                                  .seconds_per_context = 1e-9 * below(5),
                                  .seconds_per_iteration = 1e-3 * below(20),
                                  .tokens_per_iteration = below(3) == 0 ? std::numeric_limits<double>::infinity()
                                                                        : static_cast<double>(16 + below(2000)),
                                  .seconds_until_next = 1e-3 * below(10)};
    Runs runs;
    std::uint32_t found = 0;
    for (std::uint32_t i = 0, count = 1 + below(4); i < count; ++i) {
      runs.push_back({.from = i == 0 ? CacheLevel::kG2 : CacheLevel::kG3,
                      .blocks = 1 + below(60),
                      .block_bytes = 1000,
                      .bytes_per_second = 1e5 * (1 + below(40)),
                      .bytes_ahead = below(3) * 10'000,
                      .latency_seconds = 1e-4 * below(20)});
      found += runs.back().blocks;
    }
    const LoadQuestion question{.runs = runs,
                                .block_size = 16,
                                .first_token = 16 * below(100),
                                .total_tokens = 0,
                                .engine_is_busy = below(2) == 0};
    LoadQuestion total = question;
    total.total_tokens = question.first_token + found * 16 + 1 + below(3000);
    const auto seconds = [&](std::uint32_t loaded) {
      double time = prefill.seconds(total.first_token + loaded * 16, total.total_tokens);
      time += loaded > 0 && total.engine_is_busy ? prefill.seconds_until_next : 0;
      std::set<CacheLevel> used;
      for (const LoadRun& run : runs) {
        const std::uint32_t blocks = std::min(run.blocks, loaded);
        loaded -= blocks;
        if (blocks > 0 && used.insert(run.from).second) {
          time += static_cast<double>(run.bytes_ahead) / run.bytes_per_second + run.latency_seconds;
        }
        time += 1000.0 * blocks / run.bytes_per_second;
      }
      return time;
    };
    double least = std::numeric_limits<double>::max();
    for (std::uint32_t n = 0; n <= found; ++n) {
      least = std::min(least, seconds(n));
    }
    EXPECT_NEAR(seconds(blocks_worth_loading(prefill, total)), least, 1e-9) << "round " << round;
  }
}

}  // namespace
}  // namespace cairn
