#include "examples/engine/engine_process_testing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "cairn/base/check.h"
#include "cairn/tier/disk_format.h"

namespace cairn::engine {
namespace {

std::vector<std::string> words_of(const EngineConfig& config) {
  constexpr const char* kModels[] = {"grouped", "few-heads", "mla"};
  std::vector<std::string> words{config.program, "--processes", "--disk", config.disk};
  const auto add = [&words](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
  const auto add_number = [&add](const char* name, std::uint64_t value) {
    if (value != 0) {
      add(name, std::to_string(value));
    }
  };
  add("--model", kModels[static_cast<std::size_t>(config.model)]);
  add_number("--requests", config.workload.requests);
  add_number("--turns", config.workload.turns);
  add_number("--seed", config.workload.seed);
  add_number("--tensor", config.ranks.tensor);
  add_number("--pipeline", config.ranks.pipeline);
  add_number("--device-blocks", config.device_blocks);
  add_number("--host-blocks", config.host_blocks);
  add_number("--host-size", config.host_size);
  add_number("--disk-size", config.disk_size);
  return words;
}

std::size_t entries_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(disk::kEntriesOffset);
  std::size_t entries = 0;
  disk::EntryBytes bytes;
  while (file.read(reinterpret_cast<char*>(bytes.data()), sizeof bytes)) {
    entries += disk::is_entry(bytes) ? 1 : 0;
  }
  return entries;
}

}  // namespace

EngineProcess::EngineProcess(const EngineConfig& config, const std::string& folder) : disk_(config.disk) {
  // So that the ranks of a scheduler that is gone can be waited for.
  CAIRN_CHECK(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "orphans come to this process");
  int ends[2];
  CAIRN_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "a pipe can be created");
  output_ = ends[0];
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = words_of(config);
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  std::string temporary = "TMPDIR=" + folder;
  char* const environment[] = {temporary.data(), nullptr};
  CAIRN_CHECK(
      ::posix_spawn(&scheduler_, config.program.c_str(), &actions, &attributes, arguments.data(), environment) == 0,
      "the engine can be started");
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
}

EngineProcess::~EngineProcess() {
  kill();
  ::close(output_);
}

bool EngineProcess::wait_for_disk(std::size_t blocks) const {
  // The engine writes nothing before its report.
  pollfd report{.fd = output_, .events = POLLIN, .revents = 0};
  while (entries_of(disk_) < blocks) {
    if (::poll(&report, 1, 1) > 0) {
      return false;
    }
  }
  return true;
}

std::vector<pid_t> EngineProcess::ranks() const {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process > 0 && process != scheduler_ && ::getpgid(process) == scheduler_) {
      found.push_back(process);
    }
  }
  return found;
}

bool EngineProcess::kill() {
  if (scheduler_ == 0) {
    return false;
  }
  ::kill(-scheduler_, SIGKILL);
  int status = 0;
  ::waitpid(scheduler_, &status, 0);
  while (::waitpid(-scheduler_, nullptr, 0) > 0 || errno == EINTR) {
  }
  scheduler_ = 0;
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace cairn::engine
