// Whole runs that are compared with one another.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "examples/engine/example_engine.h"

namespace cairn::engine {

// A device of one process with room for all, and nothing beyond it: what everything else is compared with.
[[nodiscard]] inline EngineConfig plain_config() {
  EngineConfig config;
  config.workload = {.requests = 9, .turns = 3, .seed = 11};
  config.device_blocks = 128;
  config.program = EXAMPLE_ENGINE;
  return config;
}

// Numbers of ranks to run with. Sanitizers make the model ten times slower: there, two have to do.
[[nodiscard]] inline auto ranks_to_run() {
  return CAIRN_SANITIZED ? testing::ValuesIn(std::vector<std::uint32_t>{2})
                         : testing::ValuesIn(std::vector<std::uint32_t>{1, 2, 4});
}

[[nodiscard]] inline RunFigures run(const EngineConfig& config) {
  const auto figures = run_engine(config);
  EXPECT_TRUE(figures) << figures.error().to_string();
  return figures ? *figures : RunFigures();
}

[[nodiscard]] inline const RunFigures& reference() {
  static const RunFigures figures = run(plain_config());
  return figures;
}

inline void expect_same_text(const RunFigures& figures) {
  EXPECT_EQ(figures.requests, reference().requests);
  EXPECT_EQ(figures.generated_tokens, reference().generated_tokens);
  EXPECT_EQ(figures.token_digest, reference().token_digest);
  EXPECT_EQ(figures.logit_digest, reference().logit_digest);
  EXPECT_EQ(figures.tiers.refused, 0U) << figures.tiers.refusal;
}

}  // namespace cairn::engine
