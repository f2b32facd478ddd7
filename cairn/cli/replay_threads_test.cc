#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cairn/cli/replay_runs.h"
#include "cairn/cli/trace_output.h"

namespace cairn::cli {
namespace {

TEST(ReplayThreadsTest, TheNumberOfThreadsChangesNothing) {
  TraceOptions options;
  options.workload.requests = 200;
  const std::string trace = ::testing::TempDir() + "replay_threads.jsonl";
  {
    std::ofstream file(trace);
    ASSERT_TRUE(run_trace(options, file));
  }
  const ManualClock clock;
  const std::atomic<bool> stop{false};
  std::string first;
  for (const std::uint32_t threads : {1U, 2U, 4U}) {
    std::ostringstream out;
    std::ostringstream log;
    ASSERT_TRUE(run_replay_command({.traces = {trace},
                                    .settings = {.options = {"workers=3", "blocks=512"}},
                                    .compare = "host.size=0,5GB,10GB,20GB",
                                    .json = "-",
                                    .threads = threads},
                                   {.out = out, .log = log, .clock = clock, .stop = stop, .log_is_a_terminal = true}));
    if (first.empty()) {
      first = out.str();
    }
    EXPECT_EQ(out.str(), first) << threads << " threads";
  }
}

}  // namespace
}  // namespace cairn::cli
