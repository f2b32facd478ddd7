// Replays with the tiers of a real manager below the engines: blocks are loaded from there if that is faster, loads take
// their time, and all requests are answered whatever the sizes are.
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

constexpr std::uint64_t kBlockBytes = 1'000'000;

ReplayOptions small(std::uint32_t workers) {
  ReplayOptions options{
      .engine = {.blocks = 16,
                 .block_size = 4,
                 .max_num_batched_tokens = 64,
                 .costs = *CostModel::parse("prefill,0,0\nprefill,1000,1000\ndecode,0,10\ndecode,1000,10\n")},
      .workers = workers,
      .host_link = {.gigabytes_per_s_down = 10, .gigabytes_per_s_up = 10},
      .disk_link = {.gigabytes_per_s_down = 10, .gigabytes_per_s_up = 10}};
  options.manager.model = {.layers = 1, .kv = 1, .heads = 1, .head_size = kBlockBytes / 4, .element_type = "int8"};
  options.manager.offload_to_host.mode = OffloadMode::kOnRegistration;
  options.manager.offload_to_disk.mode = OffloadMode::kOnRegistration;
  options.manager.onboard.prefill_tokens_per_second = 1000;
  options.manager.onboard.host_to_device_bytes_per_second = 10'000'000'000;
  options.manager.onboard.disk_to_host_bytes_per_second = 10'000'000'000;
  options.manager.onboard.disk_to_device_bytes_per_second = 10'000'000'000;
  return options;
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
  options.manager.host.blocks = 64;
  options.host_link = {.gigabytes_per_s_down = 1, .gigabytes_per_s_up = 1};  // a block a millisecond, four to compute
  options.manager.onboard.host_to_device_bytes_per_second = 1'000'000'000;
  const Report report = replay(options, there_and_back());
  EXPECT_EQ(report.counts.completed, 3U);
  // All but the last token, which is always computed.
  EXPECT_EQ(report.requests[2].reused_tokens, 39U);
  ASSERT_EQ(report.tiers.size(), 1U);
  const TierCounts& host = report.tiers[0];
  EXPECT_GT(host.loaded, 0U);
  EXPECT_EQ(host.bytes_read, host.loaded * kBlockBytes);
  EXPECT_EQ(host.bytes_written, host.copied * kBlockBytes);
  EXPECT_GT(report.loaded_ratio(CacheLevel::kG2), 0);
  EXPECT_EQ(report.latencies.load_ms.count, 1U);
  EXPECT_NEAR(report.latencies.load_ms.mean, static_cast<double>(host.loaded), 0.001);
  // The load, the last token, and the pass that generates.
  const Duration ttft = report.requests[2].first_token - report.requests[2].arrival;
  EXPECT_EQ(ttft, milliseconds(host.loaded) + milliseconds(1) + milliseconds(10));
  EXPECT_LT(report.requests[2].first_token, without.requests[2].first_token);
}

TEST(ReplayTiersTest, WhatIsFasterToComputeIsNotLoaded) {
  const Report without = replay(small(1), there_and_back());
  ReplayOptions options = small(1);
  options.manager.host.blocks = 64;
  options.host_link.gigabytes_per_s_up = 0.1;  // ten milliseconds a block, four to compute
  options.manager.onboard.host_to_device_bytes_per_second = 100'000'000;
  const Report report = replay(options, there_and_back());
  EXPECT_EQ(report.tiers[0].loaded, 0U);
  EXPECT_GT(report.counts.rejected_tokens, 0U);
  EXPECT_EQ(report.requests[2].first_token, without.requests[2].first_token);

  options.manager.onboard.weigh = false;
  const Report loaded = replay(options, there_and_back());
  EXPECT_GT(loaded.tiers[0].loaded, 0U);
  EXPECT_GT(loaded.requests[2].first_token, without.requests[2].first_token);
}

TEST(ReplayTiersTest, BlocksEvictedFromTheNearestTierAreFoundInTheNext) {
  ReplayOptions options = small(1);
  options.manager.host.blocks = 8;
  options.manager.disk.blocks = 64;
  std::vector<ReplayRequest> requests;
  for (Token token = 1; token <= 4; ++token) {
    requests.push_back(request(token, 40, 1, seconds(token)));
  }
  requests.push_back(request(1, 40, 1, seconds(10)));
  const Report report = replay(options, requests);
  ASSERT_EQ(report.tiers.size(), 2U);
  EXPECT_GT(report.tiers[1].copied, 0U);
  EXPECT_GT(report.tiers[1].loaded, 0U);
  EXPECT_GE(report.requests[4].reused_tokens, report.tiers[1].loaded * 4);
}

TEST(ReplayTiersTest, ADiskMayBeTheOnlyTier) {
  ReplayOptions options = small(1);
  options.manager.disk.blocks = 64;
  const Report report = replay(options, there_and_back());
  ASSERT_EQ(report.tiers.size(), 1U);
  EXPECT_EQ(report.tiers[0].level, CacheLevel::kG3);
  EXPECT_GT(report.loaded_ratio(CacheLevel::kG3), 0);
  EXPECT_EQ(report.requests[2].reused_tokens, 39U);
}

TEST(ReplayTiersTest, RequestsThatNeedTheSameBlocksShareOneLoad) {
  ReplayOptions options = small(1);
  options.engine.blocks = 20;
  options.manager.host.blocks = 64;
  std::vector<ReplayRequest> requests = there_and_back();
  requests[1].prompt = {{2, 76}};  // leaves nothing of the first
  requests.push_back(request(1, 40, 1, seconds(2)));
  const Report report = replay(options, requests);
  EXPECT_EQ(report.requests[2].reused_tokens, 39U);
  EXPECT_EQ(report.requests[3].reused_tokens, 39U);
  EXPECT_LE(report.tiers[0].bytes_read, 10 * kBlockBytes);
}

// A disk that fails, stalls or lies for a while: its blocks are computed again meanwhile, and it is used again afterwards.
TEST(ReplayTiersTest, AFaultCostsLoadsWhileItLasts) {
  for (const TierFault::Kind kind : {TierFault::Kind::kFail, TierFault::Kind::kStall, TierFault::Kind::kGarbage}) {
    SCOPED_TRACE(to_string(kind));
    ReplayOptions options = small(1);
    options.manager.disk.blocks = 1'000;
    options.manager.onboard.deadline = milliseconds(500);
    std::vector<ReplayRequest> requests;
    for (int i = 0; i < 300; ++i) {
      requests.push_back(request(static_cast<Token>(1 + i % 5), 40, 1, seconds(1 + i)));
    }
    const Report good = replay(options, requests);
    EXPECT_EQ(good.tiers[0].failed, 0U);
    options.faults = {{.level = CacheLevel::kG3, .kind = kind, .begin = seconds(50), .length = seconds(60)}};
    const Report bad = replay(options, requests);
    EXPECT_EQ(bad.counts.completed, 300U);
    EXPECT_GT(bad.tiers[0].failed, 0U);
    EXPECT_GT(bad.tiers[0].times_out, 0U);
    EXPECT_LT(bad.tiers[0].loaded, good.tiers[0].loaded);
    EXPECT_GT(bad.latencies.ttft_ms.mean, good.latencies.ttft_ms.mean);
    std::uint64_t reused_after = 0;
    for (std::size_t i = 280; i < 300; ++i) {
      reused_after += bad.requests[i].reused_tokens;
    }
    EXPECT_EQ(reused_after, 20U * 39U) << "the disk is used again";
  }
}

TEST(ReplayTiersTest, WorkersThatShareALinkWaitForEachOther) {
  ReplayOptions options = small(2);
  options.manager.host.blocks = 64;
  options.host_link = {.gigabytes_per_s_down = 10, .gigabytes_per_s_up = 1};
  options.manager.onboard.host_to_device_bytes_per_second = 1'000'000'000;
  std::vector<ReplayRequest> requests;
  for (const ReplayRequest& each : there_and_back()) {
    requests.push_back(each);
    requests.push_back(each);
  }
  const Report own = replay(options, requests);
  EXPECT_EQ(own.requests[4].first_token, own.requests[5].first_token);
  options.host_link.shared_by_all = true;
  const Report shared = replay(options, requests);
  EXPECT_EQ(shared.requests[4].first_token, own.requests[4].first_token);
  EXPECT_GT(shared.requests[5].first_token, own.requests[5].first_token);
}

TEST(ReplayTiersTest, RejectsTheSeedProfileAndNoPrefixCaching) {
  ReplayOptions options = small(1);
  options.manager.host.blocks = 8;
  ListSource source({});
  options.engine.prefix_caching = false;
  EXPECT_FALSE(run_replay(options, source));
  options.engine.prefix_caching = true;
  options.engine.profile = Profile::kSeed;
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
    options.manager.host.blocks = seed % 3 != 1 ? up_to(40) : 0;
    options.manager.disk.blocks = seed % 3 != 0 ? up_to(40) : 0;
    options.manager.onboard = {.weigh = random() % 2 == 0};
    for (cairn::OffloadOptions* const offload : {&options.manager.offload_to_host, &options.manager.offload_to_disk}) {
      offload->mode = random() % 2 == 0 ? OffloadMode::kAhead : OffloadMode::kOnRegistration;
    }
    for (ReplayLink* const link : {&options.host_link, &options.disk_link}) {
      *link = {.gigabytes_per_s_down = random() % 4 == 0 ? 0 : 0.01 * up_to(300),
               .gigabytes_per_s_up = random() % 4 == 0 ? 0 : 0.01 * up_to(300),
               .latency = milliseconds(random() % 3),
               .in_order = random() % 2 == 0,
               .shared_by_all = random() % 2 == 0};
    }
    if (random() % 2 == 0) {
      options.faults = {{.level = random() % 2 == 0 ? CacheLevel::kG2 : CacheLevel::kG3,
                         .kind = static_cast<TierFault::Kind>(random() % 3),
                         .begin = milliseconds(random() % 1000),
                         .length = milliseconds(random() % 2000)}};
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
