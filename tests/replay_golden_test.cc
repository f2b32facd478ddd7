// Replays whose reports were recorded: by the system that the simulator is modelled on, where its traces are at hand;
// and one of our own, of a generated trace, so that no change of a figure goes unnoticed.
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

// Every key that was recorded: counts as they are, figures to within a share of themselves.
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

TEST(ReplayGoldenTest, RecordedReportsAgree) {
  std::vector<std::filesystem::path> goldens;
  if (std::filesystem::is_directory(CAIRN_MORE_GOLDENS)) {
    for (const auto& entry : std::filesystem::directory_iterator(CAIRN_MORE_GOLDENS)) {
      if (entry.path().filename().string().starts_with("replay-")) {
        goldens.push_back(entry.path());
      }
    }
  }
  std::size_t replayed = 0;
  for (const std::filesystem::path& golden : goldens) {
    const Json recorded = read_json(golden);
    const std::string trace = std::string(CAIRN_TRACES) + "/" + recorded["config"]["trace"].get<std::string>();
    // Under sanitizers only what takes seconds.
    const bool too_slow = CAIRN_SANITIZED && recorded["report"]["num_requests"] > 4'000;
    if (std::filesystem::exists(trace) && !too_slow) {
      SCOPED_TRACE(golden.string());
      expect_agreement(recorded["report"], replay(trace, recorded["config"])["report"], 1e-8);
      ++replayed;
    }
  }
  if (replayed == 0) {
    GTEST_SKIP() << "no recorded replays in " << CAIRN_MORE_GOLDENS << " with their traces in " << CAIRN_TRACES;
  }
}

TEST(ReplayGoldenTest, OurOwnReportsStayAsTheyAre) {
  for (const char* name : {"replay-agents-seed.json", "replay-agents-strict.json"}) {
    SCOPED_TRACE(name);
    const Json recorded = read_json(std::filesystem::path(CAIRN_GOLDENS) / name);
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
