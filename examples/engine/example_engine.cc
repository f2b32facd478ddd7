#include "examples/engine/example_engine.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "cairn/base/str_cat.h"
#include "examples/engine/process_ranks.h"

namespace cairn::engine {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // for ranks to connect, and for copies to end

// A folder of our own for the socket of Cairn's leader.
class SocketFolder {
 public:
  SocketFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cairn_engine_XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) {
      path_ = pattern;
    }
  }
  ~SocketFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  [[nodiscard]] RankAddress address() const { return {RankAddress::Unix{path_ + "/leader.sock"}}; }

 private:
  std::string path_;
};

// Describes the engine to Cairn: the whole model, all ranks together.
ManagerConfig manager_config(const EngineConfig& config, const ModelShape& model) {
  ManagerConfig manager;
  manager.block_size = kBlockTokens;
  manager.model = {.name = "example-engine",
                   .weights_generation = model.seed,
                   .layers = model.layers,
                   .kv = model.kv,
                   .heads = model.kv_heads,
                   .head_size = kHeadSize,
                   .element_type = "f32"};
  manager.device.blocks = config.device_blocks;
  manager.device.memory = DeviceMemory::kSystem;
  manager.device.managed_by_engine = true;
  manager.host.blocks = config.host_blocks;
  manager.host.size = config.host_size;
  manager.host.pinning = Pinning::kOff;
  manager.onboard.weigh = false;  // this engine is so small that it computes faster than anything is loaded
  if (!config.disk.empty()) {
    manager.disk.path = config.disk;
    manager.disk.blocks = config.disk_size == 0 ? config.disk_blocks : 0;
    manager.disk.size = config.disk_size;
    // Everything is written to disk at once: the next run starts with it.
    manager.offload_to_disk.mode = OffloadMode::kOnRegistration;
  }
  // A run takes seconds: a suspended tier is tried again soon.
  manager.health.first_wait = std::chrono::milliseconds(1);
  manager.health.longest_wait = std::chrono::milliseconds(20);
  return manager;
}

Result<std::unique_ptr<Ranks>> start_ranks(const EngineConfig& config, const RankConfig& ranks, LocalLeader* leader) {
  if (config.processes) {
    auto started = ProcessRanks::start(config.program, ranks);
    if (!started) {
      return Unexpected(started.error());
    }
    return std::unique_ptr<Ranks>(std::move(*started));
  }
  auto made = LocalRanks::make(ranks, leader);
  if (!made) {
    return Unexpected(made.error());
  }
  return std::unique_ptr<Ranks>(std::move(*made));
}

Result<std::unique_ptr<SchedulerConnector>> make_connector(const EngineConfig& config, const ModelShape& model,
                                                           const SocketFolder& folder) {
  SchedulerConnector::Options options;
  options.manager = manager_config(config, model);
  options.ranks.ranks = config.ranks;
  if (config.processes) {
    options.ranks.address = folder.address();
  }
  options.load = config.load;
  options.in_step_save_blocks = config.in_step_save_blocks;
  return SchedulerConnector::make(std::move(options));
}

// Serves, and shuts down in order: copies first, then the ranks that carry them out.
Result<RunFigures> serve(const EngineConfig& config, const ModelShape& model, SchedulerConnector* connector,
                         Ranks& ranks) {
  Scheduler scheduler({.device_blocks = config.device_blocks,
                       .step_tokens = config.step_tokens,
                       .max_positions = model.max_positions,
                       .end_token = kEndToken},
                      connector);
  auto figures = run_workload(make_workload(config.workload), scheduler, ranks, config.drop_device);
  if (!figures) {
    return figures;
  }
  if (connector != nullptr) {
    if (Status drained = connector->manager().drain(kPatience); !drained) {
      return Unexpected(drained.error());
    }
  }
  if (Status stopped = ranks.stop(); !stopped) {
    return Unexpected(stopped.error());
  }
  return figures;
}

}  // namespace

Result<RunFigures> run_engine(const EngineConfig& config) {
  RankConfig rank_config;
  rank_config.model.seed = config.workload.seed;
  rank_config.ranks = config.ranks;
  rank_config.model.kv_heads = config.model == EngineModel::kGrouped    ? 4
                               : config.model == EngineModel::kFewHeads ? 2
                                                                        : 1;
  rank_config.model.kv = config.model == EngineModel::kMla ? 1 : 2;
  rank_config.device_blocks = config.device_blocks;
  rank_config.faults = config.faults;
  rank_config.fault_seed = config.workload.seed;

  const SocketFolder folder;
  std::unique_ptr<SchedulerConnector> connector;
  if (config.has_tiers()) {
    auto made = make_connector(config, rank_config.model, folder);
    if (!made) {
      return Unexpected(made.error());
    }
    connector = std::move(*made);
    if (config.processes) {
      rank_config.leader = connector->address()->to_string();
    }
  }
  const auto ranks = start_ranks(config, rank_config, connector ? &connector->local_leader() : nullptr);
  if (!ranks) {
    return Unexpected(ranks.error());
  }
  if (connector) {
    if (Status ready = connector->wait_for_ranks(kPatience); !ready) {
      return Unexpected(ready.error());
    }
  }
  return serve(config, rank_config.model, connector.get(), **ranks);
}

}  // namespace cairn::engine
