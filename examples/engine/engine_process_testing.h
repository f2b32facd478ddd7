// EngineProcess: the program example_engine as a process of its own, with its rank processes, for tests that look at it from outside
// or kill it in mid-run.
//
// Thread safety: one thread.
// Ownership: the destructor kills all of its processes and waits until they are gone.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "examples/engine/example_engine.h"

namespace cairn::engine {

class EngineProcess {
 public:
  // `folder` is for its temporary files. Requires: config.processes, and a disk tier.
  EngineProcess(const EngineConfig& config, const std::string& folder);
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;
  ~EngineProcess();

  // Waits until so many blocks are on disk. Returns false if the engine ended before.
  [[nodiscard]] bool wait_for_disk(std::size_t blocks) const;
  [[nodiscard]] pid_t scheduler() const { return scheduler_; }
  [[nodiscard]] std::vector<pid_t> ranks() const;
  // SIGKILL to all of them at once. False if the engine had ended before.
  bool kill();

 private:
  std::string disk_;
  pid_t scheduler_ = 0;  // and the process group; 0: gone
  int output_ = -1;
};

}  // namespace cairn::engine
