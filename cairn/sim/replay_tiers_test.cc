// Replays with tiers below the engines: evicted blocks are loaded from there, loads take their time, and all requests
// are answered whatever the sizes are.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "cairn/sim/list_source_testing.h"
#include "cairn/sim/replay.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ReplayOptions small(std::uint32_t workers) {
  return {.engine = {.blocks = 16,
                     .block_size = 4,
                     .max_num_batched_tokens = 64,
                     .costs = *CostModel::parse("prefill,0,0\nprefill,1000,1000\ndecode,0,10\ndecode,1000,10\n")},
          .workers = workers,
          .block_bytes = 1'000'000};
}

ReplayRequest request(Token token, std::uint32_t input, std::uint64_t output, TimePoint arrival) {
  return {.line = 1, .arrival = arrival, .prompt = {{token, input}}, .output_tokens = output};
}

Report replay(const ReplayOptions& options, std::vector<ReplayRequest> requests) {
  ListSource source(std::move(requests));
  Result<Report> report = run_replay(options, source);
  EXPECT_TRUE(report) << report.error().message;
  return *std::move(report);
}

// A prompt of ten blocks, another one that evicts it, and the first one again.
std::vector<ReplayRequest> there_and_back() {
  return {request(1, 40, 1, TimePoint(0)), request(2, 44, 1, seconds(1)), request(1, 40, 1, seconds(2))};
}

TEST(ReplayTiersTest, EvictedBlocksAreLoadedFromBelowInTheTimeThatTakes) {
  const Report without = replay(small(1), there_and_back());
  EXPECT_LT(without.requests[2].reused_tokens, 40U);

  ReplayOptions options = small(1);
  options.tiers = {{.level = CacheLevel::kG2, .blocks = 64, .gigabytes_per_s = 1}};  // a block a millisecond
  const Report report = replay(options, there_and_back());
  EXPECT_EQ(report.counts.completed, 3U);
  // All but the last token, which is always computed.
  EXPECT_EQ(report.requests[2].reused_tokens, 39U);
  ASSERT_EQ(report.tiers.size(), 1U);
  EXPECT_EQ(report.loaded_tokens[0], report.tiers[0].loaded * 4);
  EXPECT_GT(report.tiers[0].loaded, 0U);
  EXPECT_EQ(report.tiers[0].bytes_up, report.tiers[0].loaded * 1'000'000);
  EXPECT_EQ(report.tiers[0].bytes_down, report.tiers[0].copied * 1'000'000);
  EXPECT_GT(report.loaded_ratio(0), 0);
  // The load, the last token, and the pass that generates.
  const Duration ttft = report.requests[2].first_token - report.requests[2].arrival;
  EXPECT_GE(ttft, milliseconds(report.tiers[0].loaded) + milliseconds(10));

  options.tiers[0].gigabytes_per_s = 0.1;
  const Report slower = replay(options, there_and_back());
  EXPECT_GT(slower.requests[2].first_token, report.requests[2].first_token);
}

TEST(ReplayTiersTest, BlocksEvictedFromTheNearestTierAreFoundInTheNext) {
  ReplayOptions options = small(1);
  options.tiers = {{.level = CacheLevel::kG2, .blocks = 8, .gigabytes_per_s = 1},
                   {.level = CacheLevel::kG3, .blocks = 64, .gigabytes_per_s = 1}};
  std::vector<ReplayRequest> requests;
  for (Token token = 1; token <= 4; ++token) {
    requests.push_back(request(token, 40, 1, seconds(token)));
  }
  requests.push_back(request(1, 40, 1, seconds(10)));
  const Report report = replay(options, requests);
  EXPECT_GT(report.tiers[1].copied, 0U);
  EXPECT_GT(report.tiers[1].loaded, 0U);
  EXPECT_EQ(report.requests[4].reused_tokens, 39U);
}

TEST(ReplayTiersTest, RejectsMoreThanThreeTiers) {
  ReplayOptions options = small(1);
  options.tiers.resize(4, {.blocks = 8});
  ListSource source({});
  EXPECT_FALSE(run_replay(options, source));
}

TEST(ReplayTiersTest, RejectsTheSeedProfile) {
  ReplayOptions options = small(1);
  options.tiers = {{.blocks = 8}};
  options.engine.profile = Profile::kSeed;
  ListSource source({});
  EXPECT_FALSE(run_replay(options, source));
}

// Any sizes and traffic, links shared or not: all requests are answered, and a second run gives the same report.
TEST(ReplayTiersTest, AllRequestsAreAnsweredWhateverTheSizes) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](std::uint64_t most) { return static_cast<std::uint32_t>(1 + random() % most); };
    ReplayOptions options = small(up_to(3));
    options.engine.blocks = 12 + up_to(20);
    options.engine.max_num_seqs = up_to(6);
    options.engine.eviction = random() % 2 == 0 ? PolicyKind::kLru : PolicyKind::kLineageTick;
    for (std::uint32_t tier = 0; tier < 1 + seed % 3; ++tier) {
      options.tiers.push_back({.level = CacheLevel{static_cast<std::uint8_t>(1 + tier)},
                               .blocks = up_to(40),
                               .gigabytes_per_s = random() % 4 == 0 ? 0 : 0.01 * up_to(300),
                               .latency = milliseconds(random() % 3),
                               .shared_by_all = random() % 2 == 0});
    }
    std::vector<ReplayRequest> requests;
    TimePoint now{0};
    for (int i = 0; i < 60; ++i) {
      now += milliseconds(random() % 60);
      requests.push_back(request(up_to(5), up_to(36), up_to(9), now));
    }
    const Report report = replay(options, requests);
    ASSERT_EQ(report.counts.completed, 60U) << "seed " << seed;
    const Report again = replay(options, requests);
    ASSERT_EQ(again.duration_ms, report.duration_ms);
    ASSERT_EQ(again.loaded_tokens, report.loaded_tokens);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(again.requests[i].first_token, report.requests[i].first_token);
    }
  }
}

}  // namespace
}  // namespace cairn::sim
