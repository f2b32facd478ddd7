// `cairn` as a process: signals, and progress on a terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cairn/cli/trace_output.h"

namespace cairn {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ReplayProcessTest : public ::testing::TestWithParam<int> {};
// Ctrl-C, and the signals that service managers send: the command prints its report and cleans up.
INSTANTIATE_TEST_SUITE_P(Signals, ReplayProcessTest, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_P(ReplayProcessTest, ASignalPrintsTheReportSoFar) {
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
      kill(child, GetParam());
      ASSERT_EQ(waitpid(child, &status, 0), child);
      break;
    }
    std::this_thread::yield();
  }
  ASSERT_TRUE(WIFEXITED(status)) << "the command handled the signal";
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

// Runs the command to its end, with standard error in this file or terminal; returns its wait status.
int status_of(std::vector<std::string> words, const std::string& log) {
  posix_spawn_file_actions_t actions;
  EXPECT_EQ(posix_spawn_file_actions_init(&actions), 0);
  EXPECT_EQ(posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0), 0);
  EXPECT_EQ(posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_NOCTTY | O_CREAT | O_TRUNC, 0600),
            0);
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, CAIRN_COMMAND, &actions, nullptr, arguments.data(), nullptr), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ProgressProcessTest, ProgressIsWrittenToATerminalAndToNothingElse) {
  const std::string folder = ::testing::TempDir();
  const std::string trace = folder + "progress_process.jsonl";
  const std::string log = folder + "progress_process.log";
  cli::TraceOptions options;
  options.workload.requests = 200;
  {
    std::ofstream file(trace);
    ASSERT_TRUE(cli::run_trace(options, file));
  }
  const std::vector<std::string> hitrate = {CAIRN_COMMAND, "hitrate", trace, "--policy", "lru"};
  const std::vector<std::string> replay = {CAIRN_COMMAND, "replay", trace};
  const std::vector<std::string> stress = {CAIRN_COMMAND, "stress", "--seconds", "1.3", "--threads", "1"};
  for (const std::vector<std::string>& words : {hitrate, replay, stress}) {
    EXPECT_EQ(status_of(words, log), 0);
    EXPECT_EQ(text_of(log), "") << words[1];
  }
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  if (terminal == -1 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
    GTEST_SKIP() << "no terminals here";
  }
  const std::string name = ptsname(terminal);
  const int held = open(name.c_str(), O_RDWR | O_NOCTTY);  // keeps the output readable after the command has ended
  EXPECT_EQ(status_of(hitrate, name), 0);
  std::string shown(4096, '\0');
  const ssize_t count = read(terminal, shown.data(), shown.size());
  ASSERT_GT(count, 0);
  shown.resize(static_cast<std::size_t>(count));
  EXPECT_NE(shown.find(" of 5 runs"), std::string::npos) << shown;
  close(held);
  close(terminal);
  std::filesystem::remove(trace);
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace cairn
