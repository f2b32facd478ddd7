#include "cairn/lab/request_hints.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cairn/lab/block_trace.h"
#include "cairn/lab/experiment.h"
#include "cairn/lab/simulate.h"
#include "cairn/trace/workload.h"

namespace cairn::lab {
namespace {

Trace timed(const std::vector<std::tuple<double, std::string, std::vector<std::uint64_t>>>& rows) {
  Trace trace("timed", 512);
  for (const auto& [time, session, ids] : rows) {
    EXPECT_TRUE(trace.add({.timestamp_ms = time, .session = session, .hash_ids = ids}));
  }
  return trace;
}

TEST(RequestHintsTest, ASessionReturnsWithTheNextRequestOfItsName) {
  const auto hints = honest_hints(timed({{0, "a", {1}}, {1000, "b", {1}}, {5000, "a", {1, 2}}}));
  ASSERT_EQ(hints.size(), 3U);
  EXPECT_EQ(hints[0].returns_in, std::chrono::seconds(5));
  EXPECT_EQ(hints[1].returns_in, std::nullopt);
  EXPECT_EQ(hints[2].returns_in, std::nullopt);
}

TEST(RequestHintsTest, WithoutNamesItReturnsWithTheNextThatBeginsAlike) {
  const auto hints = honest_hints(timed({{0, "", {1, 2}}, {1000, "", {7}}, {3000, "", {1, 2, 3}}}));
  EXPECT_EQ(hints[0].returns_in, std::chrono::seconds(3));
  EXPECT_EQ(hints[1].returns_in, std::nullopt);
  EXPECT_EQ(hints[0].system_blocks, 0U);
}

TEST(RequestHintsTest, WhatManyBeginWithIsASystemPrompt) {
  std::vector<std::tuple<double, std::string, std::vector<std::uint64_t>>> rows;
  for (std::uint64_t i = 0; i < 16; ++i) {
    rows.push_back({1000.0 * static_cast<double>(i), "", {1, 2, 100 + i}});
  }
  rows.push_back({16'000, "", {1, 2, 100, 5}});
  const auto hints = honest_hints(timed(rows));
  EXPECT_EQ(hints[0].system_blocks, 2U);
  EXPECT_EQ(hints[0].returns_in, std::chrono::seconds(16));
  EXPECT_EQ(hints[1].returns_in, std::nullopt);
}

// Hints that are the opposite of the truth, and hints that are the same for every request.
enum class Lie : std::uint8_t {
  kNone,
  kOpposite,
  kOppositeOfHalf,
  kAllReturnAtOnce,
  kNothingReturns,
  kAllSystemPrompt
};

std::vector<RequestHints> hints_of(const Trace& trace, Lie lie) {
  std::vector<RequestHints> hints = honest_hints(trace);
  for (std::size_t i = 0; i < hints.size(); ++i) {
    switch (lie) {
      case Lie::kNone:
        break;
      case Lie::kOppositeOfHalf:
        if (i % 2 == 0) {
          break;
        }
        [[fallthrough]];
      case Lie::kOpposite:
        hints[i] = {
            .system_blocks = 0,
            .returns_in = hints[i].returns_in ? std::nullopt : std::optional<Duration>(std::chrono::seconds(5))};
        break;
      case Lie::kAllReturnAtOnce:
        hints[i].returns_in = Duration::zero();
        break;
      case Lie::kNothingReturns:
        hints[i] = {};
        break;
      case Lie::kAllSystemPrompt:
        hints[i].system_blocks = trace.requests()[i].blocks;
        break;
    }
  }
  return hints;
}

class HintsTest : public ::testing::TestWithParam<PolicyKind> {};

TEST_P(HintsTest, HonestOnesCloseHalfOfTheGapAndLiesCostLittle) {
  for (const trace::WorkloadKind kind : {trace::WorkloadKind::kChat, trace::WorkloadKind::kDiurnal}) {
    Trace trace(std::string(to_string(kind)), 512);
    trace::generate({.kind = kind, .requests = 2'500},
                    [&](const trace::TraceRow& row) { EXPECT_TRUE(trace.add(row)); });
    const std::uint32_t capacity = parse_capacity("3%")->of(trace);
    const auto with = [&](Lie lie) {
      const std::vector<RequestHints> hints = hints_of(trace, lie);
      return simulate(trace, {.policy = GetParam(), .capacity = capacity, .hints = hints})->block_ratio();
    };
    const double lru = simulate(trace, {.policy = PolicyKind::kLru, .capacity = capacity})->block_ratio();
    const double opt = simulate_opt(trace, capacity).block_ratio();
    EXPECT_GE(with(Lie::kNone), lru + (opt - lru) / 2) << trace.name();
    const double without = simulate(trace, {.policy = GetParam(), .capacity = capacity})->block_ratio();
    for (const Lie lie :
         {Lie::kOpposite, Lie::kOppositeOfHalf, Lie::kAllReturnAtOnce, Lie::kNothingReturns, Lie::kAllSystemPrompt}) {
      EXPECT_GE(with(lie), 0.96 * without) << trace.name() << ", lie " << static_cast<int>(lie);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, HintsTest,
                         ::testing::Values(PolicyKind::kLru, PolicyKind::kArc, PolicyKind::kAdaptive));

}  // namespace
}  // namespace cairn::lab
