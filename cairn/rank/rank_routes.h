// RankRoutes: the plans and executors that move blocks between two tiers of a rank, for each group of layers or each layer.
//
// Groups on different GPUs have executors of their own.
//
// Thread safety: immutable after make().
// Ownership:     holds the rank's memory. The destructor waits for transfers that have begun, then flushes the files.
// Errors:        make(): no GPU, no memory for staging, or tensors that overlap.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/layout/layer_groups.h"
#include "cairn/manager/executors.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/rank/rank_memory.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/executor.h"

namespace cairn {

// A group of layers, or some layers of it.
struct GroupRoute {
  std::uint32_t group = 0;
  CopyPlanPtr plan;
  TransferExecutor* executor = nullptr;
  // If it is of RankRoutes::by_layer(): the layers of the model, from the first on.
  std::uint32_t first_layer = 0;
  std::uint32_t layers = 0;
};

class RankRoutes {
 public:
  // Wraps each executor, to inject faults.
  using Around = std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)>;
  [[nodiscard]] static Result<std::unique_ptr<RankRoutes>> make(const ManagerConfig& config, const LayerGroups& groups,
                                                                RankMemory memory, const Clock& clock,
                                                                const Around& around);

  ~RankRoutes();
  RankRoutes(const RankRoutes&) = delete;
  RankRoutes& operator=(const RankRoutes&) = delete;

  [[nodiscard]] const RankMemory& memory() const { return memory_; }
  [[nodiscard]] std::uint32_t device_blocks() const { return memory_.layouts(CacheLevel::kG1).front()->blocks(); }
  // One for each group, in order; empty if blocks cannot go from one tier to the other.
  [[nodiscard]] std::span<const GroupRoute> whole(CacheLevel from, CacheLevel to) const {
    return routes_[index_of(from)][index_of(to)].whole;
  }
  // All layers of the model in order, only to the device and from it to host memory. From the device, each layer alone: they
  // are computed one by one. To the device, runs of layers: the first layer alone, because the engine waits for it, then
  // more at a time, because large copies are faster, and fewer again towards the last, because what comes at the end cannot
  // be computed meanwhile.
  [[nodiscard]] std::span<const GroupRoute> by_layer(CacheLevel from, CacheLevel to) const {
    return routes_[index_of(from)][index_of(to)].by_layer;
  }
  // Only needed with a virtual clock.
  void check_deadlines();

 private:
  // The executors of one device, and what they refer to.
  struct OfDevice {
    OfDevice(const ManagerConfig& of_all, int device, const Clock& clock, const Around& around);
    ManagerConfig config;
    ManagerParts parts;
    Executors executors;
  };
  struct TierRoutes {
    std::vector<GroupRoute> whole;
    std::vector<GroupRoute> by_layer;
  };

  explicit RankRoutes(RankMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] Status add_routes(CacheLevel from, CacheLevel to, const LayerGroups& groups);
  [[nodiscard]] Status add_layers(CacheLevel from, CacheLevel to, const LayerGroups& groups);

  RankMemory memory_;
  std::array<std::array<TierRoutes, kCacheLevels>, kCacheLevels> routes_;  // by from, to
  std::map<int, OfDevice> devices_;                                        // last: the executors end before the memory
};

}  // namespace cairn
