// The engine as a whole: model, ranks, scheduler and, if there are tiers, Cairn, made from one configuration.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/base/result.h"
#include "cairn/connector/scheduler_connector.h"
#include "examples/engine/engine_workload.h"
#include "examples/engine/serving.h"

namespace cairn::engine {

enum class EngineModel : std::uint8_t {
  kGrouped,   // 4 KV heads
  kFewHeads,  // 2 KV heads: four tensor ranks hold each of them twice
  kMla,       // one tensor for keys and values together, which every tensor rank holds
};

struct EngineConfig {
  WorkloadConfig workload;
  EngineModel model = EngineModel::kGrouped;
  RankGrid ranks = 1;
  bool processes = false;  // one for each rank; otherwise all ranks are in this process
  std::uint32_t device_blocks = 64;
  std::uint32_t step_tokens = 64;
  bool drop_device = false;  // forget the device's own cache after each round

  // Tiers of Cairn, in blocks or in bytes of all ranks together. Without any, the engine runs without Cairn.
  std::uint32_t host_blocks = 0;
  std::uint64_t host_size = 0;
  std::string disk = {};  // path
  std::uint32_t disk_blocks = 4096;
  std::uint64_t disk_size = 0;  // 0: disk_blocks
  LoadMode load = LoadMode::kAsync;
  std::uint32_t in_step_save_blocks = 8;  // SchedulerConnector::Options; 0: saves begin after their step
  double faults = 0;                      // share of copied blocks that fail

  std::string program = "/proc/self/exe";  // that rank processes run

  [[nodiscard]] bool has_tiers() const { return host_blocks > 0 || host_size > 0 || !disk.empty(); }
};

// Starts the engine, serves the workload and stops it. The file on disk stays.
[[nodiscard]] Result<RunFigures> run_engine(const EngineConfig& config);

}  // namespace cairn::engine
