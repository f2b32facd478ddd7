// Prompt: the tokens of a prompt as a sequence needs them: the keys of its full blocks, and the tokens after the last
// one.
//
// hashed() makes the keys from runs of equal tokens without writing the tokens down: the blocks inside a run have the
// same hash, which is computed once. The keys are the same as those of the written tokens.
//
// Errors:     hashed() fails for a block size below 2, an empty prompt, and more blocks than keys have positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

struct TokenRun;  // replay.h

struct Prompt {
  std::vector<BlockKey> keys = {};
  std::vector<BlockHash> block_hashes = {};
  std::vector<Token> tail = {};  // fewer than a block
  std::size_t size = 0;          // tokens

  [[nodiscard]] static Result<Prompt> hashed(std::span<const TokenRun> runs, std::uint32_t block_size);
};

}  // namespace cairn::sim
