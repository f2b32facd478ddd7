#include <utility>

#include "examples/engine/ranks.h"

namespace cairn::engine {

Result<std::unique_ptr<LocalRanks>> LocalRanks::make(const RankConfig& config, LocalLeader* leader) {
  auto made = std::make_unique<LocalRanks>();
  made->grid_ = config.ranks;
  for (std::uint32_t i = 0; i < config.ranks.count(); ++i) {
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
  const std::uint32_t stages = input.rows.empty() ? 0 : grid_.pipeline;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    const std::span<const std::unique_ptr<Rank>> ranks = std::span(ranks_).subspan(stage * grid_.tensor, grid_.tensor);
    if (stage > 0) {
      for (const auto& rank : ranks) {
        rank->shard().set_hidden(ranks_[stage * grid_.tensor - 1]->shard().hidden());
      }
    }
    for (std::uint32_t layer = 0; layer < ranks[0]->shard().part().layers.count; ++layer) {
      std::vector<std::span<const float>> parts;
      for (const auto& rank : ranks) {
        parts.push_back(rank->attend(layer));
      }
      const std::vector<float> whole = gather_heads(parts, input.rows.size());
      for (const auto& rank : ranks) {
        rank->finish_layer(layer, whole);
      }
    }
  }
  StepOutput output;
  for (const auto& rank : ranks_) {
    merge(output, rank->end());
  }
  return output;
}

}  // namespace cairn::engine
