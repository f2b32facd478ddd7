// The command as a process: what only a process can show.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "cairn/cli/trace.h"

namespace cairn {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ReplayProcessTest, CtrlCPrintsTheReportSoFar) {
  const std::string folder = ::testing::TempDir();
  const std::string trace = folder + "replay_process.jsonl";
  const std::string events = folder + "replay_process.events";
  const std::string out = folder + "replay_process.out";
  std::filesystem::remove(events);
  cli::TraceOptions options;
  options.workload.requests = 30'000;  // seconds of work after the first events are written
  {
    std::ofstream file(trace);
    ASSERT_TRUE(cli::run_trace(options, file));
  }
  posix_spawn_file_actions_t actions;
  ASSERT_EQ(posix_spawn_file_actions_init(&actions), 0);
  ASSERT_EQ(posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 0);
  ASSERT_EQ(posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0), 0);
  std::string words[] = {CAIRN_COMMAND, "replay", trace, "--workers", "4", "--events", events};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                       words[4].data(), words[5].data(), words[6].data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, CAIRN_COMMAND, &actions, nullptr, arguments, nullptr), 0);
  posix_spawn_file_actions_destroy(&actions);

  int status = 0;
  std::error_code none;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::filesystem::exists(events) && std::filesystem::file_size(events, none) > 0) {
      kill(child, SIGINT);
      ASSERT_EQ(waitpid(child, &status, 0), child);
      break;
    }
    std::this_thread::yield();
  }
  ASSERT_TRUE(WIFEXITED(status)) << "the handler was there";
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const std::string report = text_of(out);
  EXPECT_NE(report.find("stopped before the end"), std::string::npos) << report;
  EXPECT_NE(report.find("TTFT"), std::string::npos);
  const std::string written = text_of(events);
  EXPECT_EQ(written.back(), '\n') << "events are whole lines";
  for (const std::string& path : {trace, events, out}) {
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace cairn
