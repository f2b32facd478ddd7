// Whole runs that are compared with one another.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <vector>

#include "examples/engine/example_engine.h"

namespace cairn::engine {

// The reference for all other runs: one process, a device with room for everything, no tiers.
[[nodiscard]] inline EngineConfig plain_config() {
  EngineConfig config;
  config.workload = {.requests = 9, .turns = 3, .seed = 11};
  config.device_blocks = 128;
  config.program = EXAMPLE_ENGINE;
  return config;
}

// A model, and the ranks that share it.
struct ModelAndRanks {
  EngineModel model = EngineModel::kGrouped;
  RankGrid ranks = 1;
};
inline void PrintTo(const ModelAndRanks& of, std::ostream* out) {
  constexpr const char* kNames[] = {"grouped", "few heads", "mla"};
  *out << kNames[static_cast<std::size_t>(of.model)] << " on " << of.ranks.to_string();
}

// What to run with. Sanitizers make the model ten times slower: they run with two ranks only.
[[nodiscard]] inline auto ranks_to_run() {
  using enum EngineModel;
  return CAIRN_SANITIZED ? testing::ValuesIn(std::vector<ModelAndRanks>{{kGrouped, 2}, {kMla, 2}})
                         : testing::ValuesIn(std::vector<ModelAndRanks>{{kGrouped, 1},
                                                                        {kGrouped, 4},
                                                                        {kGrouped, {2, 2}},
                                                                        {kGrouped, {1, 3}},
                                                                        {kFewHeads, 4},
                                                                        {kMla, 4},
                                                                        {kMla, {2, 2}}});
}

[[nodiscard]] inline RunFigures run(const EngineConfig& config) {
  const auto figures = run_engine(config);
  EXPECT_TRUE(figures) << figures.error().to_string();
  return figures ? *figures : RunFigures();
}

[[nodiscard]] inline const RunFigures& reference(EngineModel model = EngineModel::kGrouped) {
  static std::map<EngineModel, RunFigures> figures;
  if (!figures.contains(model)) {
    EngineConfig config = plain_config();
    config.model = model;
    figures[model] = run(config);
  }
  return figures[model];
}

inline void expect_same_text(const RunFigures& figures, EngineModel model = EngineModel::kGrouped) {
  const RunFigures& expected = reference(model);
  EXPECT_EQ(figures.requests, expected.requests);
  EXPECT_EQ(figures.generated_tokens, expected.generated_tokens);
  EXPECT_EQ(figures.token_digest, expected.token_digest);
  EXPECT_EQ(figures.logit_digest, expected.logit_digest);
  EXPECT_EQ(figures.tiers.refused, 0U) << figures.tiers.refusal;
}

}  // namespace cairn::engine
