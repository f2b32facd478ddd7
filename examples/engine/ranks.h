// Ranks: whoever computes the engine's steps: one model shard in this process, or several in processes of their own.
#pragma once

#include <memory>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/model.h"
#include "examples/engine/step.h"

namespace cairn::engine {

class Ranks {
 public:
  virtual ~Ranks() = default;

  // Computes a step on every rank. After an error nothing more can be computed.
  [[nodiscard]] virtual Result<std::vector<Sample>> run(const StepInput& input) = 0;
  // Ends them in an orderly way.
  [[nodiscard]] virtual Status stop() = 0;
};

// What a rank must know to come into being.
struct RankConfig {
  ModelConfig model;
  std::uint32_t ranks = 1;
  std::uint32_t device_blocks = 64;
};

// All ranks in this process, in lockstep.
class LocalRanks final : public Ranks {
 public:
  explicit LocalRanks(const RankConfig& config);

  [[nodiscard]] Result<std::vector<Sample>> run(const StepInput& input) override;
  [[nodiscard]] Status stop() override { return {}; }
  [[nodiscard]] ModelShard& shard(std::uint32_t rank) { return shards_[rank]; }

 private:
  std::vector<ModelShard> shards_;
};

}  // namespace cairn::engine
