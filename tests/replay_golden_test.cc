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
  const Result<cli::ReplayEnd> end =
      cli::run_replay_command({.trace = trace,
                               .settings = {.workers = config["workers"],
                                            .block_size = config["block_size"],
                                            .blocks = config["blocks"],
                                            .placement = config.value("placement", "round-robin"),
                                            .profile = config.value("profile", "seed")},
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

}  // namespace
}  // namespace cairn
