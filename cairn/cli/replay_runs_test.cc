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
  ASSERT_TRUE(run({.traces = {trace}, .settings = {.options = {"workers=2"}}}));
  EXPECT_THAT(
      out_.str(),
      HasSubstr("2 workers, each 16,384 blocks of 64 tokens (1,048,576 tokens, 154.6 GB); adaptive, round-robin, "
                "profile strict"));
  EXPECT_THAT(out_.str(), HasSubstr("300 answered of 300 that came"));
  for (const char* title : {"hit ratio", "TTFT", "ITL", "TPOT", "E2E", "queue", "evictions", "peak use", "p99"}) {
    EXPECT_THAT(out_.str(), HasSubstr(title));
  }
  EXPECT_EQ(log_.str(), "") << "no progress if the log is a pipe or a file";
}

TEST_F(ReplayCommandTest, WritesTheKeysOfRecordedReportsAndMoreBesides) {
  const std::string trace = write_file("replay.jsonl", chat(100));
  ASSERT_TRUE(run({.traces = {trace}, .json = "-"}));
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
  ASSERT_TRUE(run({.traces = {trace}}));
  EXPECT_THAT(log_.str(), HasSubstr("left out 2 bad rows\n  line 2: no JSON object"));
  EXPECT_THAT(out_.str(), HasSubstr("1 answered of 1"));
  EXPECT_THAT(error_of({.traces = {trace}, .strict = true}), HasSubstr("line 2: no JSON object"));
}

TEST_F(ReplayCommandTest, RefusesByName) {
  const std::string trace = write_file("long.jsonl", "{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1]}\n");
  ASSERT_TRUE(run({.traces = {trace}, .settings = {.options = {"blocks=16"}}}));
  EXPECT_THAT(out_.str(), HasSubstr("1 refused, as they could never be served:\n  line 1: 1537 tokens take 25 blocks"));
}

TEST_F(ReplayCommandTest, ReadsCompressedTraces) {
  const std::string path = ::testing::TempDir() + "replay.jsonl.gz";
  const std::string text = chat(50);
  gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  ASSERT_TRUE(run({.traces = {path}}));
  EXPECT_THAT(out_.str(), HasSubstr("50 answered of 50"));
}

TEST_F(ReplayCommandTest, WritesEventsThatAddUp) {
  const std::string trace = write_file("replay.jsonl", chat(100));
  const std::string path = ::testing::TempDir() + "events.jsonl";
  ASSERT_TRUE(
      run({.traces = {trace}, .settings = {.options = {"workers=2", "blocks=1024"}}, .json = "-", .events = path}));
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
  ASSERT_TRUE(run({.traces = {trace}, .compare = "blocks=1024,16384"}));
  EXPECT_THAT(out_.str(), HasSubstr("blocks=16384 against blocks=1024"));
  EXPECT_THAT(out_.str(), HasSubstr("matters: hit ratio"));
  ASSERT_TRUE(run({.traces = {trace}, .compare = "max-seqs=255,256"}));
  EXPECT_THAT(out_.str(), HasSubstr("no difference that matters: hit ratio, mean TTFT, mean ITL"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("  matters:")));
}

TEST_F(ReplayCommandTest, SaysWhatIsWrongWithTheOptions) {
  const std::string trace = write_file("replay.jsonl", chat(10));
  EXPECT_THAT(error_of({.traces = {"/no/such/trace"}}), HasSubstr("no such trace: /no/such/trace"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"workers=0"}}}),
              HasSubstr("--workers is 0; give at least 1"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"block-size=1"}}}), HasSubstr("--block-size is 1"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"policy=best"}}}),
              HasSubstr("unknown policy 'best' (expected fifo, lru"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"placement=best"}}}),
              HasSubstr("round-robin or prefix"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"profile=best"}}}), HasSubstr("seed or strict"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"speedup=0"}}}), HasSubstr("above 0"));
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"costs=/no/such/file"}}}),
              HasSubstr("cannot open"));
  EXPECT_THAT(error_of({.traces = {trace}, .compare = "blocks"}), HasSubstr("KEY=V1,V2"));
  EXPECT_THAT(error_of({.traces = {trace}, .compare = "blocks=1024"}), HasSubstr("two or more"));
  EXPECT_THAT(error_of({.traces = {trace}, .compare = "blocks=1,x"}), HasSubstr("device.blocks"));
  EXPECT_THAT(error_of({.traces = {trace}, .compare = "size=1,2"}), HasSubstr("(expected engine, policy, block-size"));
  EXPECT_THAT(error_of({.traces = {trace}, .compare = "blocks=1,2", .events = "e"}),
              HasSubstr("--events needs a single run"));
  EXPECT_THAT(error_of({.traces = {trace}, .json = "/no/such/folder/x"}), HasSubstr("cannot write"));
  EXPECT_THAT(error_of({.traces = {trace}, .events = "/no/such/folder/x"}), HasSubstr("cannot write"));
}

TEST_F(ReplayCommandTest, TiersShowWhereTokensComeFromInTextAndJson) {
  const std::string trace = write_file("replay.jsonl", chat(300));
  const ReplaySources small{.options = {"blocks=512", "host-size=20GB", "disk-size=200GB"}};
  ASSERT_TRUE(run({.traces = {trace}, .settings = small}));
  for (const char* text : {"host 2,119 blocks (135,616 tokens, 20.00 GB) at 50.00 GB/s", "tokens from     device ",
                           "faster to compute", "times what was computed", "load  "}) {
    EXPECT_THAT(out_.str(), HasSubstr(text));
  }
  ASSERT_TRUE(run({.traces = {trace}, .settings = small, .json = "-"}));
  const Json json = Json::parse(out_.str());
  const Json& sources = json["more"]["tokens_by_source"];
  EXPECT_GT(sources["host"], 0);
  EXPECT_EQ(sources["device"].get<std::uint64_t>() + sources["host"].get<std::uint64_t>() +
                sources["disk"].get<std::uint64_t>(),
            json["more"]["saved_prompt_tokens"]);
  EXPECT_EQ(json["config"]["host_blocks"], 2'119);
  EXPECT_EQ(json["config"]["manager"]["host.size"], "20GB");
  const Json& host = json["more"]["tiers"][0];
  EXPECT_EQ(host["tier"], "G2");
  EXPECT_GT(host["bytes_read"], 0);
  EXPECT_GT(host["write_amplification"], 0);
  EXPECT_GT(json["more"]["mean_load_ms"], 0);
}

TEST_F(ReplayCommandTest, ScenariosHaveTheTiersOfTheirNames) {
  const std::string trace = write_file("replay.jsonl", chat(100));
  ASSERT_TRUE(run({.traces = {trace},
                   .settings = {.options = {"blocks=512", "host-size=20GB", "disk-blocks=4096"}},
                   .scenarios = Scenarios::kAll,
                   .json = "-"}));
  const Json json = Json::parse(out_.str());
  ASSERT_EQ(json["runs"].size(), 4U);
  const std::pair<int, int> expected[] = {{0, 0}, {2'119, 0}, {0, 4'096}, {2'119, 4'096}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["runs"][i]["config"]["host_blocks"], expected[i].first);
    EXPECT_EQ(json["runs"][i]["config"]["disk_blocks"], expected[i].second);
  }
  EXPECT_EQ(json["compare"][2]["other"], "+both");
  EXPECT_THAT(error_of({.traces = {trace}, .scenarios = Scenarios::kAll}),
              HasSubstr("give --host-size, --disk-size or both"));
}

TEST_F(ReplayCommandTest, ComparesAnyKeyOfTheConfiguration) {
  const std::string trace = write_file("replay.jsonl", chat(100));
  ASSERT_TRUE(run(
      {.traces = {trace}, .settings = {.options = {"blocks=512"}}, .compare = "host.size=0,10GB,20GB", .json = "-"}));
  const Json sizes = Json::parse(out_.str());
  EXPECT_EQ(sizes["runs"][0]["config"]["host_blocks"], 0);
  EXPECT_EQ(sizes["runs"][2]["config"]["host_blocks"], 2'119);
  ASSERT_TRUE(run({.traces = {trace}, .compare = "device.policy=lineage,adaptive", .json = "-"}));
  EXPECT_EQ(Json::parse(out_.str())["runs"][0]["config"]["policy"], "lineage");
  EXPECT_THAT(error_of({.traces = {trace}, .compare = "host.size=1,x"}), HasSubstr("host.size"));
}

TEST_F(ReplayCommandTest, ReadsAConfigurationThatOptionsOverride) {
  const std::string trace = write_file("replay.jsonl", chat(20));
  const std::string config = write_file("replay.toml",
                                        "block_size = 32\n[model]\nname = \"m\"\nlayers = 32\nheads = 8\n"
                                        "head_size = 128\n[device]\nblocks = 4096\n[host]\nsize = \"8GiB\"\n");
  ASSERT_TRUE(run({.traces = {trace}, .settings = {.config = config, .options = {"host.policy=lru"}}, .json = "-"}));
  const Json json = Json::parse(out_.str())["config"];
  EXPECT_EQ(json["block_size"], 32);
  EXPECT_EQ(json["kv_bytes"], 131'072);
  EXPECT_EQ(json["blocks"], 4'096);
  EXPECT_EQ(json["host_blocks"], 2'048);
  EXPECT_EQ(json["manager"]["host.policy"], "lru");
}

TEST_F(ReplayCommandTest, MixesTracesAndSetsTheRate) {
  const std::string one = write_file("one.jsonl",
                                     "{\"hash_ids\":[1,2],\"timestamp\":5000,\"output_length\":2}\n"
                                     "{\"hash_ids\":[1,2],\"timestamp\":15000,\"output_length\":2}\n");
  const std::string two = write_file("two.jsonl",
                                     "{\"hash_ids\":[1,2],\"timestamp\":0,\"output_length\":2}\n"
                                     "{\"hash_ids\":[1,2],\"timestamp\":10000,\"output_length\":2}\n");
  ASSERT_TRUE(run({.traces = {one, two}, .json = "-"}));
  Json json = Json::parse(out_.str());
  EXPECT_EQ(json["report"]["completed_requests"], 4);
  // Each trace repeats its own prompt and not the other one's; the last token of a prompt is computed.
  EXPECT_EQ(json["more"]["saved_prompt_tokens"], 2 * 1'023);
  EXPECT_NEAR(json["report"]["duration_ms"].get<double>(), 10'000, 200);
  ASSERT_TRUE(run({.traces = {one, two}, .settings = {.options = {"rate=4"}}, .json = "-"}));
  EXPECT_NEAR(Json::parse(out_.str())["report"]["duration_ms"].get<double>(), 1'000, 200);
  EXPECT_THAT(error_of({.traces = {one, "/no/such/trace"}}), HasSubstr("no such trace"));
}

TEST_F(ReplayCommandTest, AFaultShowsInTheReport) {
  const std::string trace = write_file("replay.jsonl", chat(300));
  const auto with = [&](const std::string& fault) {
    EXPECT_TRUE(run(
        {.traces = {trace}, .settings = {.options = {"blocks=512", "host-size=20GB", "fault=" + fault}}, .json = "-"}));
    return Json::parse(out_.str());
  };
  const Json good = with("none");
  EXPECT_EQ(good["more"]["tiers"][0]["failed_blocks"], 0);
  for (const char* kind : {"fail", "garbage", "stall"}) {
    const Json bad = with("host:" + std::string(kind) + ":1s+10m");
    EXPECT_EQ(bad["report"]["completed_requests"], good["report"]["completed_requests"]) << kind;
    EXPECT_GT(bad["more"]["tiers"][0]["failed_blocks"], 0) << kind;
    EXPECT_LT(bad["more"]["tokens_by_source"]["host"], good["more"]["tokens_by_source"]["host"]) << kind;
  }
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"fault=disk:sleep:1s+1s"}}}),
              HasSubstr("invalid value 'disk:sleep:1s+1s' for fault"));
}

// The measurements in shared/reference/gpu-ceilings.md: a prompt alone in one pass, and copies that are checked.
TEST_F(ReplayCommandTest, TheProfileOfAnH200HasItsMeasuredTimes) {
  const Result<EngineProfile> profile = find_engine("h200-8b");
  ASSERT_TRUE(profile);
  const sim::CostModel costs = *sim::CostModel::parse(profile->costs);
  const std::pair<std::uint64_t, double> measured[] = {
      {1'024, 35.4}, {4'096, 133}, {8'192, 275}, {16'384, 635}, {32'768, 1'493}, {65'536, 4'041}, {131'072, 12'810}};
  for (const auto& [tokens, ms] : measured) {
    EXPECT_NEAR(std::chrono::duration<double>(costs.prefill(tokens)).count() * 1000, ms, ms / 100) << tokens;
  }
  EXPECT_EQ(profile->kv_bytes, 147'456U);
  EXPECT_NEAR(profile->host.down, 54.7, 0.5);
  EXPECT_NEAR(profile->host.up, 54.8, 0.5);
}

TEST_F(ReplayCommandTest, AnEngineCanBeAFile) {
  const std::string path = write_file("engine.txt",
                                      "# mine\nkv_bytes = 1000\ndevice_size = 64MB\nhost = 10/20\ndisk = 1\n"
                                      "prompt,0,1\nprompt,1000,11\ndecode,0,2\ndecode,1000,2\n");
  const std::string trace = write_file("replay.jsonl", "{\"hash_ids\":[1],\"output_length\":1}\n");
  ASSERT_TRUE(run({.traces = {trace}, .settings = {.options = {"engine=" + path}}, .json = "-"}));
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["config"]["blocks"], 1'000);
  EXPECT_EQ(json["config"]["host_link"]["up_gbps"], 20);
  EXPECT_DOUBLE_EQ(json["report"]["mean_ttft_ms"], 1 + 5.12 + 2);
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"engine=h300"}}}),
              HasSubstr("unknown engine 'h300' (expected h100-8b, h200-8b, h200-70b-tp4, or a file)"));
  const std::string wrong = write_file("wrong.txt", "kv_bytes = many\n");
  EXPECT_THAT(error_of({.traces = {trace}, .settings = {.options = {"engine=" + wrong}}}), HasSubstr("line 1"));
}

TEST_F(ReplayCommandTest, ReportsWhatThereIsWhenStopped) {
  const std::string trace = write_file("replay.jsonl", chat(2'000));
  stop_ = true;
  const Result<ReplayEnd> end = run({.traces = {trace}});
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
  ASSERT_TRUE(run_replay_command({.traces = {trace}},
                                 {.out = out_, .log = log_, .clock = clock, .stop = stop_, .log_is_a_terminal = true}));
  EXPECT_THAT(log_.str(), HasSubstr(" of about 2,000 requests, "));
  EXPECT_THAT(log_.str(), HasSubstr(" a second, "));
  EXPECT_THAT(log_.str(), HasSubstr(" s left"));
}

}  // namespace
}  // namespace cairn::cli
