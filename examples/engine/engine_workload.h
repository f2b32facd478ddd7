// Workload: the requests that the engine serves, drawn from a seed: conversations of several turns.
//
// Conversations share a few system prompts, and the prompt of each turn is the conversation so far with new tokens at
// the end. So prompts share prefixes, within a conversation and across conversations, as a prefix cache expects.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/engine/model_shape.h"

namespace cairn::engine {

struct WorkloadConfig {
  std::uint32_t requests = 24;
  std::uint32_t turns = 4;  // of a conversation
  std::uint32_t system_prompts = 2;
  std::uint32_t vocabulary = 512;
  std::uint64_t seed = 1;
};

struct Turn {
  std::vector<TokenId> said;  // what the user adds
  std::uint32_t max_new_tokens = 0;
};

struct Conversation {
  std::vector<TokenId> system_prompt;
  std::vector<Turn> turns;
};

// Token 0 ends an answer, and is in no prompt.
inline constexpr TokenId kEndToken = 0;

// Conversations without the last turn come last.
[[nodiscard]] std::vector<Conversation> make_workload(const WorkloadConfig& config);

}  // namespace cairn::engine
