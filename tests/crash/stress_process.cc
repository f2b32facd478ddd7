#include "tests/crash/stress_process_testing.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::crash {

Process::Process(const std::vector<std::string>& words, const std::string& log) : log_(log) {
  int ends[2];
  CAIRN_CHECK(pipe2(ends, O_CLOEXEC) == 0, "a pipe can be created");
  pipe_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  CAIRN_CHECK(posix_spawn(&child_, words[0].c_str(), &actions, nullptr, arguments.data(), nullptr) == 0,
              "the process can be started");
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
}

Process::~Process() {
  if (child_ != -1) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(pipe_);
}

bool Process::kill_after(std::chrono::microseconds time) {
  // The pipe becomes readable when the report is written or the process ends.
  pollfd ready{.fd = pipe_, .events = POLLIN, .revents = 0};
  const timespec limit{.tv_sec = time.count() / 1'000'000, .tv_nsec = time.count() % 1'000'000 * 1000};
  while (ppoll(&ready, 1, &limit, nullptr) == -1 && errno == EINTR) {
  }
  kill(child_, SIGKILL);
  const int status = wait();
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

int Process::wait() {
  char buffer[4096];
  for (ssize_t count = 1; count != 0;) {
    count = read(pipe_, buffer, sizeof(buffer));
    if (count > 0) {
      report_.append(buffer, static_cast<std::size_t>(count));
    } else if (count == -1 && errno != EINTR) {
      break;
    }
  }
  int status = 0;
  while (waitpid(child_, &status, 0) == -1 && errno == EINTR) {
  }
  child_ = -1;
  return status;
}

std::string Process::log() const {
  std::ifstream file(log_);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> command_of(const StressRun& run) {
  std::vector<std::string> words{CAIRN_COMMAND,
                                 "stress",
                                 "--json",
                                 "--threads=2",
                                 "--longest=8",
                                 str_cat("--seconds=", run.seconds),
                                 str_cat("--seed=", run.seed)};
  for (const std::string& setting :
       {std::string("device.blocks=32"), std::string("host.blocks=64"), str_cat("disk.blocks=", kDiskBlocks),
        "disk.path=" + run.path, str_cat("disk.direct=", run.direct ? "true" : "false"),
        str_cat("offload.disk.mode=", run.write_through ? "write-through" : "ahead"),
        std::string("health.first_wait=5ms"), std::string("health.longest_wait=20ms")}) {
    words.push_back("--set");
    words.push_back(setting);
  }
  if (run.resume) {
    words.emplace_back("--resume");
  }
  if (run.steady) {
    words.emplace_back("--steady");
  }
  return words;
}

bool Resumed::exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }

std::string Resumed::to_string() const {
  const std::string end =
      WIFEXITED(status) ? str_cat("exit status ", WEXITSTATUS(status)) : str_cat("signal ", WTERMSIG(status));
  return str_cat(end, "\n", report, "\n", log);
}

Resumed resume(StressRun run, const std::string& log) {
  run.resume = true;
  Process process(command_of(run), log);
  Resumed resumed{.status = process.wait()};
  resumed.report = process.report();
  resumed.log = process.log();
  const nlohmann::json json = nlohmann::json::parse(resumed.report, nullptr, false);
  if (json.is_object()) {
    resumed.verified = json["recovered"]["verified"];
    resumed.refused = json["recovered"]["refused"];
    resumed.wrong = json["wrong"];
  }
  return resumed;
}

}  // namespace cairn::crash
