// Whether the tiers help: the time to the first token of an engine with tiers and default settings, beside that of the same
// engine without, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include "cairn/connector/virtual_engine_testing.h"

namespace cairn::testing {
namespace {

constexpr std::size_t kWarmUp = 100;  // requests

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double quantile(std::span<const double> values, double share) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

// 1 GiB of host memory, which holds a part of the documents, and a disk that holds all.
VirtualEngine::Options with_tiers(VirtualEngine::Options options) {
  options.host_blocks = 512;
  options.disk_blocks = 8192;
  return options;
}

struct Case {
  const char* name;
  double tokens_per_second;
  double load;  // of the engine without tiers; 0: one request at a time
};

constexpr double kDisks[] = {0.5e9, 3.5e9, 7e9};  // bytes per second

class FirstTokenTest : public ::testing::TestWithParam<Case> {
 protected:
  static VirtualTraffic traffic() {
    VirtualTraffic traffic;
    const double seconds = 2200 / GetParam().tokens_per_second + 0.01;
    traffic.is_regular = GetParam().load == 0;
    traffic.gap_seconds = GetParam().load == 0 ? 1 + 10 * seconds : seconds / GetParam().load;
    return traffic;
  }
};

// Each disk serves other requests. Under load a request may come later than without tiers, as one before it in the queue does:
// only many of them together are compared.
TEST_P(FirstTokenTest, IsNotLaterWithTiers) {
  const Case& which = GetParam();
  std::vector<double> with;
  std::vector<double> without;
  for (std::size_t i = 0; i < std::size(kDisks); ++i) {
    const std::vector<VirtualRequest> requests = traffic().make(1 + i);
    VirtualEngine::Options options{.tokens_per_second = which.tokens_per_second};
    options.links.disk = kDisks[i];
    const std::vector<double> plain = VirtualEngine(options).serve(requests);
    VirtualEngine engine(with_tiers(options));
    const std::vector<double> tiered = engine.serve(requests);
    for (std::size_t request = kWarmUp; request < requests.size(); ++request) {
      with.push_back(tiered[request]);
      without.push_back(plain[request]);
      if (which.load == 0) {
        EXPECT_LE(tiered[request], 1.02 * plain[request]) << "request " << request << ", disk " << i;
      }
    }
    const PrefillStatus prefill = engine.connector().manager().status().prefill;
    EXPECT_EQ(prefill.source, PrefillStatus::Source::kLearned);
    EXPECT_NEAR(prefill.tokens_per_second, which.tokens_per_second, 0.1 * which.tokens_per_second);
  }
  std::printf("%-16s mean %.4f of %.4f (%.3f), p50 %.3f, p95 %.3f\n", which.name, mean(with), mean(without),
              mean(with) / mean(without), quantile(with, 0.5) / quantile(without, 0.5),
              quantile(with, 0.95) / quantile(without, 0.95));
  EXPECT_LE(mean(with), 1.02 * mean(without));
  EXPECT_LE(quantile(with, 0.5), 1.02 * quantile(without, 0.5));
  EXPECT_LE(quantile(with, 0.95), 1.1 * quantile(without, 0.95)) << "a queue is never the same twice";
}

constexpr Case kCases[] = {
    {"slow alone", 2'000, 0},        {"slow loaded", 2'000, 0.8},        {"usual alone", 10'000, 0},
    {"usual loaded", 10'000, 0.8},   {"fast alone", 40'000, 0},          {"fast loaded", 40'000, 0.8},
    {"very fast alone", 200'000, 0}, {"very fast loaded", 200'000, 0.8},
};
INSTANTIATE_TEST_SUITE_P(Engines, FirstTokenTest, ::testing::ValuesIn(kCases));

// Requests one at a time, of a slow engine with a fast disk.
TEST(FirstTokenWithTiersTest, WhatLoadsFasterIsLoaded) {
  VirtualEngine::Options options{.tokens_per_second = 2'000};
  options.links.disk = 7e9;
  const std::vector<VirtualRequest> requests = VirtualTraffic{.gap_seconds = 10}.make(2);
  const std::vector<double> without = VirtualEngine(options).serve(requests);
  VirtualEngine engine(with_tiers(options));
  const std::vector<double> with = engine.serve(requests);
  EXPECT_LT(mean(std::span(with).subspan(kWarmUp)), 0.3 * mean(std::span(without).subspan(kWarmUp)));
  EXPECT_GT(engine.loaded_tokens(), 4 * engine.computed_tokens());
  const ManagerStatus status = engine.connector().manager().status();
  EXPECT_EQ(status.prefill.source, PrefillStatus::Source::kLearned);
  EXPECT_NEAR(status.prefill.tokens_per_iteration, 2048, 1);
  EXPECT_NEAR(status.prefill.seconds_per_iteration, 0.008, 0.002);
  for (const LinkStatus& link : status.links) {
    if (link.from == CacheLevel::kG3 && link.to == CacheLevel::kG2) {
      EXPECT_NEAR(link.bytes_per_second, 7e9, 1e9);
    }
  }
}

TEST(FirstTokenWithTiersTest, AnEngineThatMeasuresItselfIsBelieved) {
  VirtualEngine::Options options{.tokens_per_second = 5'000, .measures = true};
  VirtualEngine engine(with_tiers(options));
  (void)engine.serve(VirtualTraffic{.requests = 60, .gap_seconds = 0.3}.make(3));
  EXPECT_NEAR(engine.connector().manager().status().prefill.tokens_per_second, 5'000, 250);
}

// After a restart the disk is full of blocks, and nothing is known of it or of the engine.
TEST(FirstTokenWithTiersTest, TheFirstLoadsMeasureTheDisk) {
  const TestFolder folder;
  VirtualEngine::Options options = with_tiers({.tokens_per_second = 2'000, .disk_path = folder.in("entries")});
  options.host_blocks = 64;  // most of it goes to disk
  const VirtualTraffic traffic{.requests = 30, .documents = 3, .gap_seconds = 20};
  (void)VirtualEngine(options).serve(traffic.make(4));
  for (const double disk : {0.1e9, 7e9}) {
    options.links.disk = disk;
    VirtualEngine engine(options);
    std::vector<VirtualRequest> requests = traffic.make(4);
    (void)engine.serve({requests[0]});
    EXPECT_GT(engine.loaded_tokens(), 0U);
    EXPECT_LE(engine.loaded_tokens(), 128U) << "16 MiB";
    EXPECT_EQ(engine.connector().manager().status().prefill.source, PrefillStatus::Source::kAssumed);
  }
}

TEST(FirstTokenWithTiersTest, ADiskThatBecomesFasterIsUsedAgain) {
  VirtualEngine::Options options = with_tiers({.tokens_per_second = 40'000});
  options.host_blocks = 128;
  options.links.disk = 0.5e9;
  const VirtualTraffic traffic{.requests = 400, .gap_seconds = 3};
  const std::vector<VirtualRequest> requests = traffic.make(5);
  VirtualEngine engine(options);
  (void)engine.serve({requests.begin(), requests.begin() + 100});
  const std::uint64_t before = engine.loaded_tokens();
  engine.links().set({.disk = 20e9});
  (void)engine.serve({requests.begin() + 100, requests.end()});
  EXPECT_LT(before, 100 * 400U);
  EXPECT_GT(engine.loaded_tokens() - before, 200 * 1000U);
}

TEST(FirstTokenWithTiersTest, ADiskThatBecomesSlowerIsLeftAlone) {
  VirtualEngine::Options options{.tokens_per_second = 10'000};
  options.links.disk = 7e9;
  const std::vector<VirtualRequest> requests = VirtualTraffic{.requests = 300, .gap_seconds = 3}.make(6);
  const std::vector<double> without = VirtualEngine(options).serve(requests);
  options = with_tiers(options);
  options.host_blocks = 128;
  VirtualEngine engine(options);
  (void)engine.serve({requests.begin(), requests.begin() + 150});
  engine.links().set({.disk = 0.2e9});
  const std::vector<double> with = engine.serve({requests.begin() + 150, requests.end()});
  EXPECT_LE(mean(std::span(with).subspan(10)), 1.02 * mean(std::span(without).subspan(160)));
}

// Reads wait for the writes of offloads.
TEST(FirstTokenWithTiersTest, ADiskThatIsAlsoWrittenToDoesNotMakeItLater) {
  for (const double disk : {0.5e9, 3.5e9}) {
    VirtualEngine::Options options{.tokens_per_second = 20'000};
    options.links.disk = disk;
    options.links.shares_disk = true;
    const std::vector<VirtualRequest> requests = VirtualTraffic{.gap_seconds = 0.15}.make(9);
    const std::vector<double> without = VirtualEngine(options).serve(requests);
    const std::vector<double> with = VirtualEngine(with_tiers(options)).serve(requests);
    EXPECT_LE(mean(std::span(with).subspan(kWarmUp)), 1.02 * mean(std::span(without).subspan(kWarmUp)));
  }
}

TEST(FirstTokenWithTiersTest, NoiseDoesNotMakeItLater) {
  VirtualEngine::Options options{.tokens_per_second = 20'000, .noise = 0.15};
  options.links.disk = 3.5e9;
  const std::vector<VirtualRequest> requests = VirtualTraffic{.requests = 400, .gap_seconds = 0.3}.make(7);
  const std::vector<double> without = VirtualEngine(options).serve(requests);
  const std::vector<double> with = VirtualEngine(with_tiers(options)).serve(requests);
  EXPECT_LE(mean(std::span(with).subspan(kWarmUp)), 1.02 * mean(std::span(without).subspan(kWarmUp)));
}

TEST(FirstTokenWithTiersTest, PinnedSpeedsDecide) {
  const std::vector<VirtualRequest> requests = VirtualTraffic{.requests = 60}.make(8);
  VirtualEngine::Options options = with_tiers({.tokens_per_second = 10'000});
  options.onboard.prefill_tokens_per_second = 1e9;
  options.onboard.host_to_device_bytes_per_second = 1'000'000'000;
  options.onboard.disk_to_host_bytes_per_second = 1'000'000'000;
  VirtualEngine fast(options);
  (void)fast.serve(requests);
  EXPECT_EQ(fast.loaded_tokens(), 0U) << "a pinned link is not measured either";
  EXPECT_EQ(fast.connector().manager().status().prefill.source, PrefillStatus::Source::kPinned);
  options.onboard.prefill_tokens_per_second = 1;
  VirtualEngine slow(options);
  (void)slow.serve(requests);
  EXPECT_GT(slow.loaded_tokens(), slow.computed_tokens());
}

}  // namespace
}  // namespace cairn::testing
