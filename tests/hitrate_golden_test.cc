// Hit ratios that are known: on public traces, as measured by other systems; on generated traces, as recorded from
// Cairn.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cairn/lab/block_trace.h"
#include "cairn/lab/experiment.h"
#include "cairn/trace/workload.h"
#include "tests/test_data_testing.h"

namespace cairn::lab {
namespace {

class ReferenceTest : public ::testing::Test {
 protected:
  static void expect(const std::string& file, const std::string& policy,
                     const std::vector<std::pair<const char*, double>>& ratios, double tolerance) {
    const auto path = test_data("traces/" + file);
    if (!path) {
      GTEST_SKIP() << kNoTestData;
    }
    const Result<Trace> trace = Trace::load(path->string(), kTraceBlockSize);
    ASSERT_TRUE(trace) << *path;
    EXPECT_EQ(trace->bad_rows(), 0U);
    for (const auto& [capacity, ratio] : ratios) {
      const auto rows = measure(*trace, *parse_contenders({policy}), {*parse_capacity(capacity)});
      ASSERT_TRUE(rows);
      EXPECT_NEAR(rows->front().counts.block_ratio(), ratio, tolerance) << policy << " " << capacity;
    }
  }
};

TEST_F(ReferenceTest, ConversationLru) {
  expect("conversation_trace.jsonl", "lru",
         {{"1%", .0525}, {"2%", .0793}, {"5%", .1958}, {"10%", .2789}, {"20%", .3453}}, .002);
}
TEST_F(ReferenceTest, ConversationOpt) {
  expect("conversation_trace.jsonl", "opt", {{"1%", .246}, {"2%", .314}, {"5%", .366}, {"10%", .366}, {"20%", .366}},
         .005);
}
TEST_F(ReferenceTest, SyntheticLru) {
  expect("synthetic_trace.jsonl", "lru", {{"2%", .078}, {"5%", .157}, {"10%", .262}, {"20%", .393}}, .002);
}
// As an independent simulator has them.
TEST_F(ReferenceTest, AgenticOptWithAndWithoutBypass) {
  expect("agentic_trace.jsonl.gz", "opt", {{"0.5%", .440}, {"1%", .655}, {"2%", .844}, {"5%", .953}}, .008);
  expect("agentic_trace.jsonl.gz", "opt-insert", {{"0.5%", .319}, {"1%", .603}, {"2%", .836}, {"5%", .953}}, .008);
}

TEST_F(ReferenceTest, SyntheticOpt) {
  expect("synthetic_trace.jsonl", "opt", {{"2%", .261}, {"5%", .396}, {"10%", .506}, {"20%", .608}}, .005);
}

// The targets, or what decision 18 says of those that it misses.
TEST_F(ReferenceTest, AdaptiveReachesItsBars) {
  struct Bar {
    const char* capacity;
    double hits;
    double of_lru = 0.99;  // of what LRU hits
  };
  const auto at_least = [](const std::string& file, const std::vector<Bar>& bars) {
    const auto path = test_data("traces/" + file);
    if (!path) {
      GTEST_SKIP() << kNoTestData;
    }
    const Result<Trace> trace = Trace::load(path->string(), kTraceBlockSize);
    ASSERT_TRUE(trace) << *path;
    for (const auto& [capacity, hits, of_lru] : bars) {
      const auto rows = measure(*trace, *parse_contenders({"adaptive", "lru"}), {*parse_capacity(capacity)});
      EXPECT_GE((*rows)[0].counts.block_ratio(), hits) << file << " " << capacity;
      EXPECT_GE((*rows)[0].counts.block_ratio(), of_lru * (*rows)[1].counts.block_ratio()) << file << " " << capacity;
    }
  };
  at_least("agentic_trace.jsonl.gz", {{"0.5%", .215}, {"1%", .450}, {"2%", .715}, {"5%", .926}, {"10%", .952}});
  at_least("conversation_trace.jsonl", {{"1%", .105}, {"2%", .148}, {"5%", .224}, {"10%", .292}, {"20%", .342}});
  at_least("synthetic_trace.jsonl",
           {{"1%", .036, 0.95}, {"2%", .069, 0.88}, {"5%", .164}, {"10%", .274}, {"20%", .414}});
}

// Where blocks need no room while their request runs, as in a tier that they are copied to.
TEST_F(ReferenceTest, AdaptiveGainsFromBypass) {
  const auto path = test_data("traces/agentic_trace.jsonl.gz");
  if (!path) {
    GTEST_SKIP() << kNoTestData;
  }
  const Result<Trace> trace = Trace::load(path->string(), kTraceBlockSize);
  ASSERT_TRUE(trace) << *path;
  const auto rows = measure(*trace, *parse_contenders({"adaptive"}),
                            {*parse_capacity("0.5%"), *parse_capacity("1%"), *parse_capacity("2%")}, {.bypass = true});
  ASSERT_TRUE(rows);
  EXPECT_GE((*rows)[0].counts.block_ratio(), .305);
  EXPECT_GE((*rows)[1].counts.block_ratio(), .502);
  EXPECT_GE((*rows)[2].counts.block_ratio(), .738);
}

// Tiers learn together: both hit about as much as one of their size.
TEST_F(ReferenceTest, AdaptiveInTwoTiers) {
  const auto expect_hits = [](const std::string& file, double hits) {
    const auto path = test_data("traces/" + file);
    if (!path) {
      GTEST_SKIP() << kNoTestData;
    }
    const Result<Trace> trace = Trace::load(path->string(), kTraceBlockSize);
    ASSERT_TRUE(trace) << *path;
    const auto rows = measure(*trace, *parse_contenders({"adaptive"}), {*parse_capacity("2%")},
                              {.tiers = {*parse_capacity("20%")}, .admit = Admit::kAll});
    ASSERT_TRUE(rows);
    EXPECT_GE(rows->front().counts.block_ratio(), hits) << file;
  };
  expect_hits("conversation_trace.jsonl", .340);
  expect_hits("synthetic_trace.jsonl", .412);
}

Trace generated(trace::WorkloadKind kind) {
  Trace trace(std::string(to_string(kind)), kTraceBlockSize);
  trace::generate({.kind = kind, .requests = 6'000}, [&](const trace::TraceRow& row) { EXPECT_TRUE(trace.add(row)); });
  return trace;
}

// The same on generated traffic, which needs no data files: hits that Cairn counted when it agreed with the references.
TEST(RecordedHitsTest, LruAndOptHitAsManyBlocksAsBefore) {
  const auto expect = [](const Trace& trace, const char* policy, const std::vector<std::uint64_t>& blocks_hit) {
    const auto rows = measure(trace, *parse_contenders({policy}), {*parse_capacity("2%"), *parse_capacity("10%")});
    ASSERT_TRUE(rows);
    EXPECT_EQ((*rows)[0].counts.blocks_hit, blocks_hit[0]) << trace.name() << " " << policy;
    EXPECT_EQ((*rows)[1].counts.blocks_hit, blocks_hit[1]) << trace.name() << " " << policy;
  };
  const Trace chat = generated(trace::WorkloadKind::kChat);
  expect(chat, "lru", {8'513, 48'340});
  expect(chat, "opt", {35'586, 72'011});
  const Trace agents = generated(trace::WorkloadKind::kAgents);
  expect(agents, "lru", {32'288, 433'419});
  expect(agents, "opt", {195'489, 479'233});
}

}  // namespace
}  // namespace cairn::lab
