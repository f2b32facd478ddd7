#include "tests/ranks/rank_processes_testing.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <csignal>

#include "cairn/base/check.h"

namespace cairn::testing {

RankProcesses::~RankProcesses() {
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    kill(rank);
  }
}

void RankProcesses::start(std::uint32_t rank) {
  CAIRN_CHECK(processes_[rank].id == 0, "the rank is not there yet");
  int ends[2];
  CAIRN_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "a socket pair");
  const std::string theirs = std::to_string(ends[1]);
  const std::string number = std::to_string(rank);
  const std::string tensor = std::to_string(grid_.ranks.tensor);
  const std::string pipeline = std::to_string(grid_.ranks.pipeline);
  const std::string heads = std::to_string(grid_.heads);
  const pid_t id = ::fork();
  CAIRN_CHECK(id >= 0, "a process");
  if (id == 0) {
    (void)::fcntl(ends[1], F_SETFD, 0);
    ::execl(CAIRN_RANK_PROCESS, "rank_process", theirs.c_str(), number.c_str(), tensor.c_str(), pipeline.c_str(),
            heads.c_str(), leader_.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::close(ends[1]);
  processes_[rank] = {.id = id, .socket = ends[0]};
}

void RankProcesses::kill(std::uint32_t rank) {
  Process& process = processes_[rank];
  if (process.id == 0) {
    return;
  }
  (void)::kill(process.id, SIGKILL);
  (void)::waitpid(process.id, nullptr, 0);
  ::close(process.socket);
  process = {};
}

void RankProcesses::stop(std::uint32_t rank) { (void)::kill(processes_[rank].id, SIGSTOP); }
void RankProcesses::go_on(std::uint32_t rank) { (void)::kill(processes_[rank].id, SIGCONT); }

std::optional<TinyAnswer> RankProcesses::step(const TinyStep& step) {
  TinyAnswer all;
  bool all_there = true;
  for (const Process& process : processes_) {
    all_there = process.id != 0 && send_step(process.socket, step) && all_there;
  }
  for (const Process& process : processes_) {
    TinyAnswer answer;
    // Reads the answers of the living ranks, so that their sockets are empty when the next step begins.
    if (process.id == 0 || !read_all(process.socket, &answer, sizeof answer)) {
      all_there = false;
      continue;
    }
    all.wrong += answer.wrong;
    all.failed += answer.failed;
    all.unheard += answer.unheard;
  }
  return all_there ? std::optional(all) : std::nullopt;
}

}  // namespace cairn::testing
