// Rank: one rank of the engine: its shard of the model, and the worker's half of using Cairn around every step.
//
// A step is begin(), then attend(l) and finish_layer(l) for each of its layers, counted from 0, then end(). All ranks of a
// pipeline stage compute the same layer at the same time.
//
// Thread safety: one thread at a time.
// Ownership: owns shard and connector.
// Errors: make() returns the error of Cairn's connector, begin() that of invalid metadata. Failed loads do not fail the
// step: they are listed in its output.
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

// What all ranks need to start.
struct RankConfig {
  ModelShape model = {};
  RankGrid ranks = 1;
  std::uint32_t device_blocks = 64;
  std::string leader = {};  // the address of Cairn's leader; empty: without Cairn, or it is in this process
  double faults = 0;        // share of copied blocks that fail
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
  // Samples of the first rank of the last stage only: all ranks there have the same.
  [[nodiscard]] StepOutput end();

  [[nodiscard]] ModelShard& shard() { return shard_; }

 private:
  Rank(const RankConfig& config, std::uint32_t rank)
      : is_sampler_(rank == config.ranks.count() - config.ranks.tensor),
        shard_(config.model, rank, config.ranks, config.device_blocks) {}

  bool is_sampler_;
  ModelShard shard_;
  std::unique_ptr<WorkerConnector> connector_;  // null: without Cairn
};

}  // namespace cairn::engine
