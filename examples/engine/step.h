// What one step of the engine asks of the ranks, and what they answer.
//
// A step computes rows: one token of one request each. A row's keys and values go to the place that its request's block
// table has for its position; it attends to the positions up to its own. Rows of a request stand in order of position.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/engine/model_config.h"

namespace cairn::engine {

using DeviceBlock = std::uint32_t;

struct StepRow {
  TokenId token = 0;
  std::uint32_t position = 0;
  std::uint32_t table = 0;  // index into StepInput::tables
};

struct StepInput {
  std::vector<StepRow> rows;
  std::vector<std::vector<DeviceBlock>> tables;  // of each request: where its blocks are, from the first on
  std::vector<std::uint32_t> sampled_rows;       // after these rows the next token is wanted
};

// The most likely next token after a row. The logit is kept as it is: one wrong bit in any key or value shows in it,
// where the token alone may be right by luck.
struct Sample {
  TokenId token = 0;
  float logit = 0;

  friend bool operator==(const Sample&, const Sample&) = default;
};

}  // namespace cairn::engine
