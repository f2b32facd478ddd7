// Starts, kills, stops and talks to the rank processes of a tiny engine. Each has its own socket.
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
  RankProcesses(const TinyGrid& grid, std::string leader)
      : grid_(grid), leader_(std::move(leader)), processes_(grid.ranks.count()) {}
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses();

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(processes_.size()); }
  // Requires: the rank is not running.
  void start(std::uint32_t rank);
  // kill -9, and waits until it is gone.
  void kill(std::uint32_t rank);
  void stop(std::uint32_t rank);
  void go_on(std::uint32_t rank);

  // Sends the step to all ranks and returns their answers together; std::nullopt if one of them is gone.
  [[nodiscard]] std::optional<TinyAnswer> step(const TinyStep& step);

 private:
  struct Process {
    pid_t id = 0;
    int socket = -1;
  };
  TinyGrid grid_;
  std::string leader_;
  std::vector<Process> processes_;
};

}  // namespace cairn::testing
