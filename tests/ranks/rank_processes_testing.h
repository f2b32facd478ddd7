// The rank processes of a tiny engine: started, killed, stopped, and talked to. Each has a socket of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/ranks/rank_talk_testing.h"

namespace cairn::testing {

class RankProcesses {
 public:
  RankProcesses(std::uint32_t ranks, std::string leader) : leader_(std::move(leader)), processes_(ranks) {}
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses();

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(processes_.size()); }
  // One that is not there.
  void start(std::uint32_t rank);
  // kill -9, and waits until it is gone.
  void kill(std::uint32_t rank);
  void stop(std::uint32_t rank);
  void go_on(std::uint32_t rank);

  // The step to all of them, and their answers together. None: one of them is gone, and only that is known.
  [[nodiscard]] std::optional<TinyAnswer> step(const TinyStep& step);

 private:
  struct Process {
    pid_t id = 0;
    int socket = -1;
  };
  std::string leader_;
  std::vector<Process> processes_;
};

}  // namespace cairn::testing
