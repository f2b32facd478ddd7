// Request: one turn of a conversation in the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/connector/scheduler_connector.h"
#include "cairn/tokens/token_sequence.h"
#include "examples/engine/device_pool.h"
#include "examples/engine/step.h"

namespace cairn::engine {

struct Request {
  std::uint32_t id = 0;
  std::vector<TokenId> tokens;  // the prompt, then what was generated
  std::size_t prompt_tokens = 0;
  std::size_t max_new_tokens = 0;
  std::vector<Sample> generated;

  std::size_t computed = 0;         // tokens, from the first on, whose keys and values are on the device
  std::vector<DeviceBlock> blocks;  // where
  std::vector<PrefixHash> hashes;   // of the full blocks of `tokens`
  std::size_t cached_blocks = 0;    // of `blocks`, from the first on, that were offered to the prefix cache
  bool finished = false;

  // Of Cairn (scheduler_tiers.h).
  std::optional<RequestHandle> handle;  // std::nullopt: it runs without Cairn
  bool refused = false;                 // Cairn has refused it: only its end is reported to Cairn
  std::size_t known_tokens = 0;         // of `tokens`, that Cairn knows
  std::size_t known_blocks = 0;         // of `blocks`, that Cairn knows
  BlockRange loaded_in_step;            // of `blocks`: the step that is computed loads them

  [[nodiscard]] std::size_t tokens_to_compute() const { return tokens.size() - computed; }
};

// Computes the hashes of the full blocks that have none yet.
inline void name_full_blocks(Request& request) {
  while ((request.hashes.size() + 1) * kBlockTokens <= request.tokens.size()) {
    const std::size_t begin = request.hashes.size() * kBlockTokens;
    const PrefixHash before = request.hashes.empty() ? 0 : request.hashes.back();
    request.hashes.push_back(hash_block(before, std::span(request.tokens).subspan(begin, kBlockTokens)));
  }
}

}  // namespace cairn::engine
