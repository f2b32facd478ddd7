// Ranks: computes the engine's steps: all ranks in this process, or each in its own process.
#pragma once

#include <memory>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/engine_rank.h"
#include "examples/engine/step.h"

namespace cairn::engine {

class Ranks {
 public:
  virtual ~Ranks() = default;

  // Computes a step on every rank. After an error nothing more can be computed.
  [[nodiscard]] virtual Result<StepOutput> run(const StepInput& input) = 0;
  // Ends them in an orderly way.
  [[nodiscard]] virtual Status stop() = 0;
};

// All ranks in this process: the ranks of a pipeline stage in lockstep, stage after stage.
class LocalRanks final : public Ranks {
 public:
  // `leader`: of Cairn, in this process; null: without Cairn. Outlives the ranks.
  [[nodiscard]] static Result<std::unique_ptr<LocalRanks>> make(const RankConfig& config,
                                                                LocalLeader* leader = nullptr);

  [[nodiscard]] Result<StepOutput> run(const StepInput& input) override;
  [[nodiscard]] Status stop() override { return {}; }
  [[nodiscard]] ModelShard& shard(std::uint32_t rank) { return ranks_[rank]->shard(); }

 private:
  RankGrid grid_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace cairn::engine
