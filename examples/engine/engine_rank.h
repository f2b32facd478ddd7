// Rank: one rank of the engine: its shard of the model, and the worker's half of using Cairn around every step.
//
// Order:    begin(), attend(l) and finish_layer(l) for each layer, end(); all ranks are at the same layer at a time.
// Owner:    owns shard and connector.
// Threads:  one at a time.
// Fails:    make(): what Cairn's connector says. begin(): metadata that it does not take. Loads that fail do not fail the
//           step: they are in its output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "cairn/base/result.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/wire/local_leader.h"
#include "examples/engine/model.h"
#include "examples/engine/step.h"

namespace cairn::engine {

// What all ranks must know to come into being.
struct RankConfig {
  ModelShape model = {};
  std::uint32_t ranks = 1;
  std::uint32_t device_blocks = 64;
  std::string leader = {};  // the address of Cairn's leader; empty: without Cairn, or it is in this process
  double faults = 0;        // share of copied blocks that go wrong
  std::uint64_t fault_seed = 1;
};

class Rank {
 public:
  // `leader`: of this process, in the place of config.leader. Outlives it.
  [[nodiscard]] static Result<std::unique_ptr<Rank>> make(const RankConfig& config, std::uint32_t rank,
                                                          LocalLeader* leader);

  [[nodiscard]] Status begin(const StepInput& input);
  [[nodiscard]] std::span<const float> attend(std::uint32_t layer);
  void finish_layer(std::uint32_t layer, std::span<const float> all_heads) { shard_.finish_layer(layer, all_heads); }
  // Samples of the first rank only: all ranks have the same.
  [[nodiscard]] StepOutput end();

  [[nodiscard]] ModelShard& shard() { return shard_; }

 private:
  Rank(const RankConfig& config, std::uint32_t rank)
      : rank_(rank), shard_(config.model, rank, config.ranks, config.device_blocks) {}

  std::uint32_t rank_;
  ModelShard shard_;
  std::unique_ptr<WorkerConnector> connector_;  // none: without Cairn
};

}  // namespace cairn::engine
