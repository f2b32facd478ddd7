// One step of the engine: the input for the ranks, and their output.
//
// A step computes rows: one token of one request each. A row's keys and values are written to the place of its position
// in its request's block table; the row attends to the positions up to its own. Rows of a request are in order of
// position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/engine/model_shape.h"

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
  std::vector<std::uint32_t> sampled_rows;       // rows after which the next token is sampled
  std::vector<std::byte> metadata;               // from Cairn's side of the scheduler to that of the ranks
};

// The most likely next token after a row. The logit is kept too: one wrong bit in any key or value changes it, while
// the token may be right by chance.
struct Sample {
  TokenId token = 0;
  float logit = 0;

  friend bool operator==(const Sample&, const Sample&) = default;
};

struct StepOutput {
  std::vector<Sample> samples;             // one for each of sampled_rows
  std::vector<DeviceBlock> failed_blocks;  // whose load in this step failed: results from them are void
};

// Adds the output of another rank for the same step.
inline void merge(StepOutput& output, StepOutput&& other) {
  output.samples.insert(output.samples.end(), other.samples.begin(), other.samples.end());
  output.failed_blocks.insert(output.failed_blocks.end(), other.failed_blocks.begin(), other.failed_blocks.end());
}

}  // namespace cairn::engine
