// RankRoutes: how blocks get from one tier of a rank to another: the plan and what carries it out, for each group of
// layers or for each layer.
//
// Does:     works all of them out once. Groups on different GPUs have executors of their own.
// Owner:    whoever copies; holds the rank's memory. Destroying it ends all copies, as executors do.
// Threads:  immutable after make().
// Fails:    make(): no GPU, no memory for staging, tensors that lie in each other.
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
#include "cairn/ranks/rank_memory.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/executor.h"

namespace cairn {

// A group of layers, or one layer of it.
struct GroupRoute {
  std::uint32_t group = 0;
  CopyPlanPtr plan;
  TransferExecutor* executor = nullptr;
};

class RankRoutes {
 public:
  // Put around each executor: faults.
  using Around = std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)>;
  [[nodiscard]] static Result<std::unique_ptr<RankRoutes>> make(const ManagerConfig& config, const LayerGroups& groups,
                                                                RankMemory memory, const Clock& clock,
                                                                const Around& around);

  // Waits for copies that have begun, then flushes the files.
  ~RankRoutes();
  RankRoutes(const RankRoutes&) = delete;
  RankRoutes& operator=(const RankRoutes&) = delete;

  [[nodiscard]] const RankMemory& memory() const { return memory_; }
  [[nodiscard]] std::uint32_t groups() const {
    return static_cast<std::uint32_t>(memory_.layouts(CacheLevel::kG1).size());
  }
  [[nodiscard]] std::uint32_t device_blocks() const { return memory_.layouts(CacheLevel::kG1).front()->blocks(); }
  // One for each group, in their order. Empty: nothing goes that way.
  [[nodiscard]] std::span<const GroupRoute> whole(CacheLevel from, CacheLevel to) const {
    return ways_[index_of(from)][index_of(to)].whole;
  }
  // To the device: one for each layer of the model, in their order.
  [[nodiscard]] std::span<const GroupRoute> by_layer(CacheLevel from, CacheLevel to) const {
    return ways_[index_of(from)][index_of(to)].by_layer;
  }
  // Where the clock does not move by itself.
  void check_deadlines();

 private:
  // The executors keep to the configuration and the parts that they were made of.
  struct OfDevice {
    OfDevice(const ManagerConfig& of_all, int device, const Clock& clock, const Around& around);
    ManagerConfig config;
    ManagerParts parts;
    Executors executors;
  };
  struct Way {
    std::vector<GroupRoute> whole;
    std::vector<GroupRoute> by_layer;
  };

  explicit RankRoutes(RankMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] Status add_way(CacheLevel from, CacheLevel to, const LayerGroups& groups);

  RankMemory memory_;
  std::array<std::array<Way, kCacheLevels>, kCacheLevels> ways_;
  std::map<int, OfDevice> devices_;  // after the plans: copies end before what they copy
};

}  // namespace cairn
