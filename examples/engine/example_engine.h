// The engine as a whole: model, ranks, scheduler and, if there are tiers, Cairn, made from one configuration.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/base/result.h"
#include "cairn/connector/scheduler_connector.h"
#include "examples/engine/engine_workload.h"
#include "examples/engine/serving.h"

namespace cairn::engine {

struct EngineConfig {
  WorkloadConfig workload;
  std::uint32_t ranks = 1;
  bool processes = false;  // each rank is one; else all are in this process
  std::uint32_t device_blocks = 64;
  std::uint32_t step_tokens = 64;
  bool drop_device = false;  // forget the device's own cache after each round

  // Tiers of Cairn; none of them: without Cairn.
  std::uint32_t host_blocks = 0;
  std::string disk = {};  // path
  std::uint32_t disk_blocks = 4096;
  LoadMode load = LoadMode::kAsync;
  double faults = 0;  // share of copied blocks that go wrong

  std::string program = "/proc/self/exe";  // that rank processes run

  [[nodiscard]] bool has_tiers() const { return host_blocks > 0 || !disk.empty(); }
};

// Brings the engine up, serves the workload and takes it down again. What is on disk stays there.
[[nodiscard]] Result<RunFigures> run_engine(const EngineConfig& config);

}  // namespace cairn::engine
