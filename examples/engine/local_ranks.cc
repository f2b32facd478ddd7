#include <utility>

#include "examples/engine/ranks.h"

namespace cairn::engine {

Result<std::unique_ptr<LocalRanks>> LocalRanks::make(const RankConfig& config, LocalLeader* leader) {
  auto made = std::make_unique<LocalRanks>();
  for (std::uint32_t i = 0; i < config.ranks; ++i) {
    auto rank = Rank::make(config, i, leader);
    if (!rank) {
      return Unexpected(rank.error());
    }
    made->ranks_.push_back(std::move(*rank));
  }
  return made;
}

Result<StepOutput> LocalRanks::run(const StepInput& input) {
  for (const auto& rank : ranks_) {
    if (Status begun = rank->begin(input); !begun) {
      return Unexpected(begun.error());
    }
  }
  const std::uint32_t layers = input.rows.empty() ? 0 : ranks_[0]->shard().config().layers;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    std::vector<std::span<const float>> parts;
    for (const auto& rank : ranks_) {
      parts.push_back(rank->attend(layer));
    }
    const std::vector<float> whole = gather_heads(parts, input.rows.size());
    for (const auto& rank : ranks_) {
      rank->finish_layer(layer, whole);
    }
  }
  StepOutput output;
  for (const auto& rank : ranks_) {
    merge(output, rank->end());
  }
  return output;
}

}  // namespace cairn::engine
