#include "cairn/cli/replay_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cairn/cli/replay_compare.h"
#include "cairn/cli/trace_output.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

std::string write_file(const std::string& name, const std::string& text) {
  std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string chat(std::uint32_t requests) {
  TraceOptions options;
  options.workload.requests = requests;
  std::ostringstream out;
  EXPECT_TRUE(run_trace(options, out));
  return out.str();
}

// A command with what it wrote.
class ReplayCommandTest : public ::testing::Test {
 protected:
  Result<ReplayEnd> run(const ReplayCommand& command, bool terminal = false) {
    out_.str("");
    log_.str("");
    return run_replay_command(
        command, {.out = out_, .log = log_, .clock = clock_, .stop = stop_, .log_is_a_terminal = terminal});
  }
  std::string error_of(const ReplayCommand& command) {
    const Result<ReplayEnd> end = run(command);
    return end ? "none" : end.error().message;
  }

  std::ostringstream out_;
  std::ostringstream log_;
  ManualClock clock_;
  std::atomic<bool> stop_{false};
};

TEST_F(ReplayCommandTest, ReportsForPeople) {
  const std::string trace = write_file("replay.jsonl", chat(300));
  ASSERT_TRUE(run({.trace = trace, .settings = {.workers = 2}}));
  EXPECT_THAT(out_.str(),
              HasSubstr("2 workers, each 16,384 blocks of 64 tokens; lineage, round-robin, profile strict"));
  EXPECT_THAT(out_.str(), HasSubstr("300 answered of 300 that came"));
  for (const char* title : {"hit ratio", "TTFT", "ITL", "TPOT", "E2E", "queue", "evictions", "peak use", "p99"}) {
    EXPECT_THAT(out_.str(), HasSubstr(title));
  }
  EXPECT_EQ(log_.str(), "") << "no progress if the log is a pipe or a file";
}

TEST_F(ReplayCommandTest, WritesTheKeysOfRecordedReportsAndMoreBesides) {
  const std::string trace = write_file("replay.jsonl", chat(100));
  ASSERT_TRUE(run({.trace = trace, .json = "-"}));
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["config"]["block_size"], 64);
  for (const char* key : {"num_requests", "prefix_cache_reused_ratio", "mean_ttft_ms", "std_itl_ms", "p99_tpot_ms",
                          "median_e2e_latency_ms", "p75_output_token_throughput_per_user", "processed_tokens"}) {
    EXPECT_TRUE(json["report"].contains(key)) << key;
  }
  EXPECT_EQ(json["report"]["completed_requests"], 100);
  EXPECT_EQ(json["more"]["hit_ratio_by_tier"]["G1"], json["report"]["prefix_cache_reused_ratio"]);
  EXPECT_FALSE(json["series"]["points"].empty());
  EXPECT_FALSE(json["ttft_histogram"].empty());
}

TEST_F(ReplayCommandTest, NamesBadRowsOrStopsAtThem) {
  const std::string trace =
      write_file("bad.jsonl", "{\"hash_ids\":[1],\"output_length\":2}\nbroken\n{\"hash_ids\":[]}\n");
  ASSERT_TRUE(run({.trace = trace}));
  EXPECT_THAT(log_.str(), HasSubstr("left out 2 bad rows\n  line 2: no JSON object"));
  EXPECT_THAT(out_.str(), HasSubstr("1 answered of 1"));
  EXPECT_THAT(error_of({.trace = trace, .strict = true}), HasSubstr("line 2: no JSON object"));
}

TEST_F(ReplayCommandTest, RefusesByName) {
  const std::string trace = write_file("long.jsonl", "{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1]}\n");
  ASSERT_TRUE(run({.trace = trace, .settings = {.blocks = 16}}));
  EXPECT_THAT(out_.str(), HasSubstr("1 refused, as they could never be served:\n  line 1: 1537 tokens take 25 blocks"));
}

TEST_F(ReplayCommandTest, ReadsCompressedTraces) {
  const std::string path = ::testing::TempDir() + "replay.jsonl.gz";
  const std::string text = chat(50);
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  ASSERT_TRUE(run({.trace = path}));
  EXPECT_THAT(out_.str(), HasSubstr("50 answered of 50"));
}

TEST_F(ReplayCommandTest, WritesEventsThatAddUp) {
  const std::string trace = write_file("replay.jsonl", chat(100));
  const std::string path = ::testing::TempDir() + "events.jsonl";
  ASSERT_TRUE(run({.trace = trace, .settings = {.workers = 2, .blocks = 1'024}, .json = "-", .events = path}));
  const Json report = Json::parse(out_.str());
  std::istringstream lines(text_of(path));
  std::uint64_t events = 0;
  std::uint64_t stored = 0;
  std::uint64_t removed = 0;
  std::uint64_t next_id[2] = {0, 0};
  double last = 0;
  for (std::string line; std::getline(lines, line); ++events) {
    const Json event = Json::parse(line);
    EXPECT_EQ(event["event_id"], next_id[event["worker"].get<int>()]++);
    EXPECT_GE(event["time_ms"].get<double>(), last);
    last = event["time_ms"].get<double>();
    if (event["data"].contains("stored")) {
      stored += event["data"]["stored"]["blocks"].size();
    } else {
      removed += event["data"]["removed"]["block_hashes"].size();
    }
  }
  EXPECT_GT(removed, 0U);
  EXPECT_EQ(report["more"]["events"], events);
  EXPECT_EQ(report["more"]["stored_blocks"], stored);
  EXPECT_EQ(report["more"]["removed_blocks"], removed);
}

TEST_F(ReplayCommandTest, ComparesAndSaysWhatMatters) {
  const std::string trace = write_file("replay.jsonl", chat(800));
  ASSERT_TRUE(run({.trace = trace, .compare = "blocks=1024,16384"}));
  EXPECT_THAT(out_.str(), HasSubstr("blocks=16384 against blocks=1024"));
  EXPECT_THAT(out_.str(), HasSubstr("matters: hit ratio"));
  ASSERT_TRUE(run({.trace = trace, .compare = "max-seqs=255,256"}));
  EXPECT_THAT(out_.str(), HasSubstr("no difference that matters: hit ratio, mean TTFT, mean ITL"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("  matters:")));
}

TEST_F(ReplayCommandTest, SaysWhatIsWrongWithTheOptions) {
  const std::string trace = write_file("replay.jsonl", chat(10));
  EXPECT_THAT(error_of({.trace = "/no/such/trace"}), HasSubstr("no such trace: /no/such/trace"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.workers = 0}}), HasSubstr("--workers is 0; give at least 1"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.block_size = 1}}), HasSubstr("--block-size is 1"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.policy = "best"}}),
              HasSubstr("unknown policy 'best' (expected fifo, lru"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.placement = "best"}}), HasSubstr("round-robin or prefix"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.profile = "best"}}), HasSubstr("seed or strict"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.speedup = 0}}), HasSubstr("above 0"));
  EXPECT_THAT(error_of({.trace = trace, .settings = {.costs = "/no/such/file"}}), HasSubstr("cannot open"));
  EXPECT_THAT(error_of({.trace = trace, .compare = "blocks"}), HasSubstr("KEY=V1,V2"));
  EXPECT_THAT(error_of({.trace = trace, .compare = "blocks=1024"}), HasSubstr("two or more"));
  EXPECT_THAT(error_of({.trace = trace, .compare = "blocks=1,x"}), HasSubstr("invalid value 'x' for blocks"));
  EXPECT_THAT(error_of({.trace = trace, .compare = "size=1,2"}), HasSubstr("(expected workers, block-size"));
  EXPECT_THAT(error_of({.trace = trace, .compare = "blocks=1,2", .events = "e"}),
              HasSubstr("--events needs a single run"));
  EXPECT_THAT(error_of({.trace = trace, .json = "/no/such/folder/x"}), HasSubstr("cannot write"));
  EXPECT_THAT(error_of({.trace = trace, .events = "/no/such/folder/x"}), HasSubstr("cannot write"));
}

TEST_F(ReplayCommandTest, ReportsWhatThereIsWhenStopped) {
  const std::string trace = write_file("replay.jsonl", chat(2'000));
  stop_ = true;
  const Result<ReplayEnd> end = run({.trace = trace});
  ASSERT_TRUE(end);
  EXPECT_EQ(*end, ReplayEnd::kStopped);
  EXPECT_THAT(out_.str(), HasSubstr("stopped before the end"));
}

// A clock that advances on each read.
class RunningClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return std::chrono::milliseconds(now_.fetch_add(40)); }

 private:
  mutable std::atomic<std::int64_t> now_{0};
};

TEST_F(ReplayCommandTest, ShowsProgressWithRateAndTimeLeftOnATerminal) {
  const std::string trace = write_file("replay.jsonl", chat(2'000));
  const RunningClock clock;
  ASSERT_TRUE(run_replay_command({.trace = trace},
                                 {.out = out_, .log = log_, .clock = clock, .stop = stop_, .log_is_a_terminal = true}));
  EXPECT_THAT(log_.str(), HasSubstr(" of about 2,000 requests, "));
  EXPECT_THAT(log_.str(), HasSubstr(" a second, "));
  EXPECT_THAT(log_.str(), HasSubstr(" s left"));
}

}  // namespace
}  // namespace cairn::cli
