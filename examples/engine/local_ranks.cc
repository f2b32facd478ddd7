#include "examples/engine/ranks.h"

namespace cairn::engine {

LocalRanks::LocalRanks(const RankConfig& config) {
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    shards_.emplace_back(config.model, rank, config.ranks, config.device_blocks);
  }
}

Result<std::vector<Sample>> LocalRanks::run(const StepInput& input) {
  for (ModelShard& shard : shards_) {
    shard.begin(input);
  }
  for (std::uint32_t layer = 0; layer < shards_[0].config().layers; ++layer) {
    std::vector<std::span<const float>> parts;
    for (ModelShard& shard : shards_) {
      parts.push_back(shard.attend(layer));
    }
    const std::vector<float> whole = gather_heads(parts, input.rows.size());
    for (ModelShard& shard : shards_) {
      shard.finish_layer(layer, whole);
    }
  }
  return shards_[0].samples();
}

}  // namespace cairn::engine
