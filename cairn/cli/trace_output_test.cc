#include "cairn/cli/trace_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "cairn/lab/simulate.h"
#include "cairn/trace/trace_row.h"

namespace cairn::cli {
namespace {

using ::testing::HasSubstr;

TraceOptions small(const std::string& kind, std::uint64_t seed = 1) {
  TraceOptions options;
  options.kind = kind;
  options.workload.requests = 500;
  options.workload.seed = seed;
  return options;
}

std::string output_of(const TraceOptions& options) {
  std::ostringstream out;
  EXPECT_TRUE(run_trace(options, out));
  return out.str();
}

TEST(TraceCommandTest, EveryKindWritesGoodRowsInOrder) {
  for (const trace::WorkloadKind kind : trace::kAllWorkloads) {
    std::istringstream lines(output_of(small(std::string(to_string(kind)))));
    trace::TraceRow row;
    double last = 0;
    std::uint32_t count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      ASSERT_TRUE(parse_trace_row(line, row)) << line;
      EXPECT_GE(row.timestamp_ms, last);
      EXPECT_LE(row.input_tokens, 512 * row.hash_ids.size());
      EXPECT_GT(row.input_tokens, 512 * (row.hash_ids.size() - 1));
      last = row.timestamp_ms;
    }
    EXPECT_EQ(count, 500U) << to_string(kind);
  }
}

TEST(TraceCommandTest, RowsSayWhatIsAnsweredAndWhatFollows) {
  std::istringstream lines(output_of(small("flood")));
  trace::TraceRow row;
  std::map<std::string, std::size_t> turns;
  std::uint64_t longest = 0;
  for (std::string line; std::getline(lines, line);) {
    ASSERT_TRUE(parse_trace_row(line, row)) << line;
    EXPECT_GE(row.output_tokens, 1U);
    longest = std::max(longest, row.output_tokens);
    ++turns[row.session];
    EXPECT_FALSE(row.delay_ms.has_value());
  }
  EXPECT_GT(longest, 100U);
  EXPECT_GT(turns[""], 100U) << "the flood belongs to no session";
  turns.erase("");
  EXPECT_GT(turns.size(), 10U);
  EXPECT_TRUE(std::ranges::any_of(turns, [](const auto& session) { return session.second > 1; }));
}

TEST(TraceCommandTest, AnySessionIsWrittenAsJson) {
  const std::string line =
      trace_line({.timestamp_ms = 3, .input_tokens = 5, .session = "a \"b\" \\c", .hash_ids = {7, 9}});
  EXPECT_EQ(line, R"({"timestamp":3,"input_length":5,"output_length":0,"session_id":"a \"b\" \\c","hash_ids":[7,9]})");
  trace::TraceRow row;
  EXPECT_TRUE(parse_trace_row(line, row));
}

TEST(TraceCommandTest, ASeedIsATrace) {
  EXPECT_EQ(output_of(small("agents", 7)), output_of(small("agents", 7)));
  EXPECT_NE(output_of(small("agents", 7)), output_of(small("agents", 8)));
}

TEST(TraceCommandTest, TheLoopIsWhatLruHitsNothingOf) {
  TraceOptions options = small("loop");
  options.workload.loop_blocks = 101;
  lab::Trace trace("loop", 512);
  trace::WorkloadOptions workload = options.workload;
  workload.kind = trace::WorkloadKind::kLoop;
  trace::generate(workload, [&](const trace::TraceRow& row) { EXPECT_TRUE(trace.add(row)); });
  EXPECT_EQ(lab::simulate(trace, {.policy = PolicyKind::kLru, .capacity = 100})->blocks_hit, 0U);
  EXPECT_GT(lab::simulate(trace, {.policy = PolicyKind::kAdaptive, .capacity = 100})->blocks_hit, 0U);
}

TEST(TraceCommandTest, SaysWhatIsWrongWithTheOptions) {
  std::ostringstream out;
  EXPECT_THAT(run_trace(small("noise"), out).error().message, HasSubstr("chat, agents"));
  TraceOptions none = small("chat");
  none.workload.requests = 0;
  EXPECT_FALSE(run_trace(none, out));
}

}  // namespace
}  // namespace cairn::cli
