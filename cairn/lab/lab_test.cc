#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/lab/block_trace.h"
#include "cairn/lab/experiment.h"
#include "cairn/lab/simulate.h"
#include "cairn/trace/workload.h"

namespace cairn::lab {
namespace {

using ::testing::HasSubstr;

Trace trace_of(const std::vector<std::vector<std::uint64_t>>& requests) {
  Trace trace("test", 512);
  for (const std::vector<std::uint64_t>& ids : requests) {
    EXPECT_TRUE(trace.add({.hash_ids = ids}));
  }
  return trace;
}

TEST(SimulateTest, CountsOnlyPrefixes) {
  // The second request hits 1 and 2; the third finds 1 gone from a cache of three, and 2 is then of no use.
  const Trace trace = trace_of({{1, 2}, {1, 2, 3}, {9, 8, 7}, {1, 2}});
  const HitCounts all = simulate_infinite(trace);
  EXPECT_EQ(all.blocks, 10U);
  EXPECT_EQ(all.blocks_hit, 4U);
  EXPECT_EQ(all.requests_hit, 2U);
  EXPECT_EQ(all.tokens_hit, 4U * 512);
  const HitCounts lru = *simulate(trace, {.policy = PolicyKind::kLru, .capacity = 3});
  EXPECT_EQ(lru.blocks_hit, 2U);
  EXPECT_EQ(lru.evicted, 5U);
  EXPECT_EQ(*simulate(trace, {.policy = PolicyKind::kLru, .capacity = 100}), all);
}

TEST(SimulateTest, HeadsGoLast) {
  // {9} takes the place of 3, the tail of the first request.
  const HitCounts counts =
      *simulate(trace_of({{1, 2, 3}, {9}, {1, 2, 3}}), {.policy = PolicyKind::kLru, .capacity = 3});
  EXPECT_EQ(counts.blocks_hit, 2U);
  EXPECT_EQ(counts.evicted, 2U);
}

TEST(SimulateTest, ARequestLargerThanTheCacheKeepsItsHead) {
  const Trace trace = trace_of({{1, 2, 3, 4}, {1, 2, 3, 4}});
  for (const PolicyKind kind : kAllPolicies) {
    EXPECT_EQ(simulate(trace, {.policy = kind, .capacity = 2})->blocks_hit, 2U) << to_string(kind);
  }
  EXPECT_EQ(simulate_opt(trace, 2).blocks_hit, 2U);
}

TEST(SimulateTest, LoopOverOneMoreThanFits) {
  std::vector<std::vector<std::uint64_t>> loop;
  for (int round = 0; round < 10; ++round) {
    loop.insert(loop.end(), {{1}, {2}, {3}});
  }
  const Trace trace = trace_of(loop);
  EXPECT_EQ(simulate(trace, {.policy = PolicyKind::kLru, .capacity = 2})->blocks_hit, 0U);
  // OPT keeps 1 and 2 and does not cache 3.
  EXPECT_EQ(simulate_opt(trace, 2).blocks_hit, 18U);
}

TEST(SimulateTest, OptThatMustInsertKeepsTheBlocksOfARequestUntilTheNext) {
  const auto hits = [](const Trace& trace, std::uint32_t capacity, OptInsertion insertion) {
    return simulate_opt(trace, capacity, insertion).blocks_hit;
  };
  // 9 is used once. It takes the room of 1 or 2 only if it must be inserted.
  const Trace once = trace_of({{1}, {2}, {9}, {1}, {2}});
  EXPECT_EQ(hits(once, 2, OptInsertion::kMayBypass), 2U);
  EXPECT_EQ(hits(once, 2, OptInsertion::kMustInsert), 1U);
  EXPECT_EQ(hits(once, 3, OptInsertion::kMustInsert), 2U);
  // A request that is larger than the cache keeps its head.
  EXPECT_EQ(hits(trace_of({{1, 2, 3}, {1, 2, 3}}), 2, OptInsertion::kMustInsert), 2U);
}

TEST(SimulateTest, OptKeepsWhatIsRequestedSoonestHeadsFirst) {
  // After the second request one of two can stay: 1, which is requested next; then of {1, 2} the head.
  EXPECT_EQ(simulate_opt(trace_of({{1}, {5}, {1, 2}, {5}, {1, 2}}), 1).blocks_hit, 2U);
  EXPECT_EQ(simulate_opt(trace_of({{1}, {5}, {1, 2}, {5}, {1, 2}}), 2).blocks_hit, 3U);
  EXPECT_EQ(simulate_opt(trace_of({{1}, {5}, {1, 2}, {5}, {1, 2}}), 3).blocks_hit, 4U);
}

TEST(SimulateTest, WhatTheFirstTierEvictsIsServedByTheNext) {
  // Two blocks above, four below. {3, 4} push {1, 2} down; then {1, 2} come up again and {3, 4} go down.
  const Trace trace = trace_of({{1, 2}, {3, 4}, {1, 2}, {3, 4}, {3, 4}});
  const CacheSetup setup{.policy = PolicyKind::kLru, .capacity = 2, .tiers = {{.capacity = 4, .least_chance = 0}}};
  const HitCounts counts = *simulate(trace, setup);
  ASSERT_EQ(counts.lower.size(), 1U);
  EXPECT_EQ(counts.blocks_hit, 6U);
  EXPECT_EQ(counts.lower[0].hits, 4U);
  EXPECT_EQ(counts.lower[0].written, 4U) << "a block that is still below is not written again";
  EXPECT_EQ(counts.lower[0].verdicts[static_cast<std::size_t>(Admission::kAdmitted)], 4U);
  EXPECT_EQ(counts.evicted, 6U);
  EXPECT_DOUBLE_EQ(counts.written_per_hit(), 4.0 / 6);
}

TEST(SimulateTest, ALowerTierTakesWhatItsFilterAdmits) {
  const Trace trace = trace_of({{1}, {2}, {1}, {3}, {1}, {4}, {1}});
  const CacheSetup setup{.policy = PolicyKind::kLru, .capacity = 1, .tiers = {{.capacity = 9, .least_uses = 2}}};
  const HitCounts counts = *simulate(trace, setup);
  EXPECT_EQ(counts.lower[0].written, 1U);
  EXPECT_EQ(counts.lower[0].hits, 2U);
  EXPECT_EQ(counts.lower[0].verdicts[static_cast<std::size_t>(Admission::kNeverSeenTwice)], 4U);
}

TEST(SimulateTest, TiersEvictDownwards) {
  const Trace trace = trace_of({{1}, {2}, {3}, {4}, {1}});
  const AdmissionOptions one{.capacity = 1, .least_chance = 0};
  const HitCounts counts = *simulate(trace, {.policy = PolicyKind::kLru, .capacity = 1, .tiers = {one, one, one}});
  EXPECT_EQ(counts.lower[0].hits, 0U);
  EXPECT_EQ(counts.lower[2].hits, 1U);
  EXPECT_EQ(counts.lower[0].written, 4U);
}

TEST(SimulateTest, WithBypassARequestKeepsOnlyWhatIsWorthMoreThanItsPlace) {
  // Documents that return every 20 s, and between them single requests as large as the cache.
  Trace trace("test", 512);
  std::uint64_t next = 1'000;
  for (int i = 0; i < 3'000; ++i) {
    std::vector<std::uint64_t> ids;
    for (int j = 0; j < 8; ++j) {
      ids.push_back(i % 2 == 0 ? static_cast<std::uint64_t>(10 * (i / 2 % 10) + j) : next++);
    }
    EXPECT_TRUE(trace.add({.timestamp_ms = 1'000.0 * i, .hash_ids = ids}));
  }
  const CacheSetup setup{.policy = PolicyKind::kAdaptive, .capacity = 80};
  CacheSetup bypass = setup;
  bypass.bypass = true;
  const std::uint64_t with = simulate(trace, bypass)->blocks_hit;
  EXPECT_GT(with, simulate(trace, setup)->blocks_hit);
  EXPECT_LE(with, simulate_opt(trace, 80).blocks_hit);
  EXPECT_GT(with, simulate_opt(trace, 80).blocks_hit * 4 / 5);
  // What fits is kept.
  bypass.capacity = trace.unique_blocks();
  EXPECT_EQ(*simulate(trace, bypass), simulate_infinite(trace));
}

TEST(SimulateTest, EndingsTellWhichSessionsReturn) {
  // Every session has two requests if the first called a tool, else one. Nothing else tells them apart.
  Trace trace("test", 512);
  std::uint64_t next = 0;
  std::vector<std::uint64_t> waiting;
  for (int i = 0; i < 6'000; ++i) {
    if (i % 3 == 2 && i > 100) {
      EXPECT_TRUE(trace.add({.timestamp_ms = 500.0 * i,
                             .ending = "end_turn",
                             .hash_ids = {waiting[static_cast<std::size_t>(i / 3 - 30)]}}));
    } else {
      const bool calls = i % 3 == 0;
      EXPECT_TRUE(
          trace.add({.timestamp_ms = 500.0 * i, .ending = calls ? "tool_use" : "end_turn", .hash_ids = {next}}));
      if (calls) {
        waiting.push_back(next);
      }
      ++next;
    }
  }
  EXPECT_EQ(trace.known_endings(), trace.requests().size());
  CacheSetup setup{.policy = PolicyKind::kAdaptive, .capacity = 40};
  const std::uint64_t without = simulate(trace, setup)->blocks_hit;
  setup.endings = true;
  EXPECT_GT(simulate(trace, setup)->blocks_hit, without * 6 / 5);
}

TEST(SimulateTest, TwoTiersAreAsGoodAsOneOfTheSizeOfTheLower) {
  for (const trace::WorkloadKind kind : {trace::WorkloadKind::kChat, trace::WorkloadKind::kFlood}) {
    Trace trace(std::string(to_string(kind)), 512);
    trace::generate({.kind = kind, .requests = 6'000, .seed = 3},
                    [&](const trace::TraceRow& row) { EXPECT_TRUE(trace.add(row)); });
    const std::uint32_t lower = trace.unique_blocks() / 5;
    const HitCounts one = *simulate(trace, {.policy = PolicyKind::kAdaptive, .capacity = lower});
    const HitCounts both = *simulate(trace, {.policy = PolicyKind::kAdaptive,
                                             .capacity = trace.unique_blocks() / 50,
                                             .tiers = {{.capacity = lower, .least_chance = 0}}});
    EXPECT_GT(both.block_ratio(), 0.97 * one.block_ratio()) << trace.name();
  }
}

TEST(ExperimentTest, CapacitiesAreSharesOrBlocks) {
  const Trace trace = trace_of({{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10}});
  EXPECT_EQ(parse_capacity("20%")->of(trace), 2U);
  EXPECT_EQ(parse_capacity("0.5%")->of(trace), 1U);
  EXPECT_EQ(parse_capacity("77")->of(trace), 77U);
  for (const char* text : {"", "%", "0", "0%", "-1", "101%", "5%%", "1k", "nan%"}) {
    EXPECT_FALSE(parse_capacity(text)) << text;
  }
}

TEST(ExperimentTest, AnUnknownPolicyIsAnsweredWithThoseThereAre) {
  EXPECT_THAT(parse_contenders({"lru", "clock"}).error().message, HasSubstr("lru"));
  EXPECT_EQ(parse_contenders({"opt", "lru"})->size(), 2U);
  EXPECT_EQ(parse_contenders({"all"})->size(), std::size(kAllPolicies) + 3);
}

TEST(ExperimentTest, RowsComeInTheRequestedOrder) {
  const Trace trace = trace_of({{1, 2}, {1, 2}, {3}, {1, 2}});
  std::size_t calls = 0;
  const auto rows = measure(trace, *parse_contenders({"opt", "lru"}), {*parse_capacity("2"), *parse_capacity("100%")},
                            {}, [&](std::size_t done, std::size_t all) {
                              EXPECT_EQ(done, ++calls);
                              EXPECT_EQ(all, 4U);
                              return true;
                            });
  ASSERT_TRUE(rows);
  ASSERT_EQ(rows->size(), 4U);
  EXPECT_EQ((*rows)[0].policy, "opt");
  EXPECT_EQ((*rows)[1].capacity, "100%");
  EXPECT_EQ((*rows)[1].blocks, 3U);
  EXPECT_EQ((*rows)[2].counts, *simulate(trace, {.policy = PolicyKind::kLru, .capacity = 2}));
}

// On every kind of traffic it is about as good as the policies it chooses among.
TEST(ExperimentTest, StopsWhenTheCallerSaysSo) {
  const Trace trace = trace_of({{1, 2}, {1, 2}});
  std::size_t most = 0;
  const auto rows = measure(trace, *parse_contenders({"all"}), {*parse_capacity("1"), *parse_capacity("2")}, {},
                            [&](std::size_t done, std::size_t /*all*/) {
                              most = done;
                              return false;
                            });
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().code, ErrorCode::kCancelled);
  EXPECT_LE(most, std::max(1U, std::thread::hardware_concurrency()));  // those that were begun
}

TEST(AdaptiveTest, IsNearTheBestOfOthersOnGeneratedTraffic) {
  for (const trace::WorkloadKind kind : trace::kAllWorkloads) {
    Trace trace(std::string(to_string(kind)), 512);
    trace::generate({.kind = kind, .requests = 6'000},
                    [&](const trace::TraceRow& row) { EXPECT_TRUE(trace.add(row)); });
    for (const char* capacity : {"2%", "5%", "20%"}) {
      const auto rows =
          measure(trace, *parse_contenders({"adaptive", "lru", "arc", "s3-fifo"}), {*parse_capacity(capacity)});
      ASSERT_TRUE(rows);
      const double adaptive = (*rows)[0].counts.block_ratio();
      EXPECT_GE(adaptive, 0.99 * (*rows)[1].counts.block_ratio()) << trace.name() << " " << capacity;
      EXPECT_GE(adaptive, 0.97 * (*rows)[2].counts.block_ratio()) << trace.name() << " " << capacity;
      EXPECT_GE(adaptive, 0.97 * (*rows)[3].counts.block_ratio()) << trace.name() << " " << capacity;
    }
  }
}

}  // namespace
}  // namespace cairn::lab
