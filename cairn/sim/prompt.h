// Prompt: the tokens of a prompt as a sequence needs them: the names of its full blocks, and the tokens after the last.
//
// Does:     named() names the blocks of runs of equal tokens without writing the tokens down: the blocks inside a run
//           have one hash, made once. The names are those that the tokens themselves would have.
// Threads:  a plain value.
// Fails:    named(): a block size below 2, no tokens, more blocks than keys have positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

// The same token, so many times.
struct TokenRun {
  Token token = 0;
  std::uint32_t count = 0;
};

struct Prompt {
  std::vector<BlockKey> keys = {};
  std::vector<BlockHash> block_hashes = {};
  std::vector<Token> tail = {};  // fewer than fill a block
  std::size_t size = 0;          // tokens

  [[nodiscard]] static Result<Prompt> named(std::span<const TokenRun> runs, std::uint32_t block_size);
};

}  // namespace cairn::sim
