// Replays whose reports were recorded: of public traces, by the system that the simulator is modelled on; and of generated
// traces, by Cairn itself, so that no change of a figure goes unnoticed.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/cli/replay_runs.h"
#include "cairn/cli/trace_output.h"
#include "tests/test_data_testing.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

Json replay(const std::string& trace, const Json& config) {
  std::ostringstream out;
  std::ostringstream log;
  const ManualClock clock;
  const std::atomic<bool> stop{false};
  const Result<cli::ReplayEnd> end = cli::run_replay_command(
      {.traces = {trace},
       .settings = {.options = {"workers=" + config["workers"].dump(), "block-size=" + config["block_size"].dump(),
                                "blocks=" + config["blocks"].dump(), "policy=" + config.value("policy", "lineage"),
                                "device.leaves_first=false", "placement=" + config.value("placement", "round-robin"),
                                "profile=" + config.value("profile", "seed")}},
       .json = "-"},
      {.out = out, .log = log, .clock = clock, .stop = stop});
  EXPECT_TRUE(end.has_value());
  return Json::parse(out.str());
}

// Compares every recorded key: counts must be equal, figures may differ by a fraction of their value.
void expect_agreement(const Json& recorded, const Json& ours, double share) {
  for (const auto& [key, value] : recorded.items()) {
    ASSERT_TRUE(ours.contains(key)) << key;
    if (value.is_number_integer()) {
      EXPECT_EQ(ours[key], value) << key;
    } else {
      EXPECT_NEAR(ours[key].get<double>(), value.get<double>(), share * std::abs(value.get<double>())) << key;
    }
  }
}

std::vector<std::filesystem::path> reports_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> reports;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("replay-")) {
      reports.push_back(entry.path());
    }
  }
  EXPECT_FALSE(reports.empty()) << folder;
  return reports;
}

TEST(ReplayGoldenTest, RecordedReportsAgree) {
  const auto folder = test_data("golden");
  if (!folder) {
    GTEST_SKIP() << kNoTestData;
  }
  for (const std::filesystem::path& report : reports_in(*folder)) {
    SCOPED_TRACE(report.string());
    const Json recorded = read_json(report);
    // Under sanitizers only replays that take seconds.
    if (!CAIRN_SANITIZED || recorded["report"]["num_requests"] <= 4'000) {
      const auto trace = test_data("traces/" + recorded["config"]["trace"].get<std::string>());
      expect_agreement(recorded["report"], replay(trace->string(), recorded["config"])["report"], 1e-8);
    }
  }
}

TEST(ReplayGoldenTest, OurOwnReportsStayAsTheyAre) {
  for (const std::filesystem::path& report : reports_in(CAIRN_GOLDENS)) {
    SCOPED_TRACE(report.string());
    const Json recorded = read_json(report);
    cli::TraceOptions options;
    options.kind = recorded["config"]["kind"];
    options.workload.requests = recorded["config"]["requests"];
    const std::string trace = ::testing::TempDir() + "replay_golden.jsonl";
    {
      std::ofstream file(trace);
      ASSERT_TRUE(cli::run_trace(options, file));
    }
    const Json ours = replay(trace, recorded["config"]);
    expect_agreement(recorded["report"], ours["report"], 1e-9);
    expect_agreement(recorded["more"], ours["more"], 1e-9);
  }
}

// A load that is slower than computing is not made, so that tiers never make the first token later, whatever the traffic.
void expect_tiers_do_no_harm(const std::string& trace, const std::string& workers, cli::Scenarios scenarios) {
  SCOPED_TRACE(trace);
  std::ostringstream out;
  std::ostringstream log;
  const ManualClock clock;
  const std::atomic<bool> stop{false};
  ASSERT_TRUE(cli::run_replay_command(
      {.traces = {trace},
       .settings = {.options = {"engine=h100-8b", "workers=" + workers, "host-size=128GB", "disk-size=1TB"}},
       .scenarios = scenarios,
       .json = "-"},
      {.out = out, .log = log, .clock = clock, .stop = stop}));
  const Json runs = Json::parse(out.str())["runs"];
  ASSERT_EQ(runs.size(), scenarios == cli::Scenarios::kAll ? 4U : 2U);
  const double without = runs[0]["report"]["mean_ttft_ms"];
  for (const Json& run : runs) {
    EXPECT_LE(run["report"]["mean_ttft_ms"].get<double>(), 1.01 * without)
        << run["config"]["host_blocks"] << " host blocks, " << run["config"]["disk_blocks"] << " disk blocks";
  }
}

TEST(ReplayGoldenTest, TiersDoNotDelayTheFirstToken) {
  for (const char* kind : {"chat", "agents", "scan", "flood", "diurnal", "loop"}) {
    cli::TraceOptions options;
    options.kind = kind;
    options.workload.requests = CAIRN_SANITIZED ? 100 : 500;
    const std::string trace = ::testing::TempDir() + "replay_tiers_" + kind + ".jsonl";
    {
      std::ofstream file(trace);
      ASSERT_TRUE(cli::run_trace(options, file));
    }
    expect_tiers_do_no_harm(trace, "4", cli::Scenarios::kAll);
  }
  // Of the public traces the beginning, because all of them take minutes.
  const auto folder = test_data("traces");
  if (folder && !CAIRN_SANITIZED) {
    for (const char* name : {"conversation_trace.jsonl", "synthetic_trace.jsonl"}) {
      const std::string begin = ::testing::TempDir() + name;
      {
        std::ifstream whole(*folder / name);
        std::ofstream file(begin);
        std::string line;
        for (int i = 0; i < 1'500 && std::getline(whole, line); ++i) {
          file << line << "\n";
        }
      }
      expect_tiers_do_no_harm(begin, "4", cli::Scenarios::kFirstAndLast);
    }
  }
}

}  // namespace
}  // namespace cairn
