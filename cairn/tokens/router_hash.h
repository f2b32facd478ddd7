// Local block hashes, which a router computes from the tokens of a request to look up blocks that engines announced.
//
// Each full block is hashed by itself, not chained: the block hash of hashes.h, seeded with salt_hash(cache namespace, lora
// name). An Eagle window has one token more than a block and still advances by a block. The multimodal hashes of a block,
// sorted, follow its tokens as little-endian u64; there are no runs as in hashes.h, so the two differ for multimodal blocks.
//
// Errors: a block size of 0, an output that is too small. Nothing is written then.
// Complexity: router_hashes() allocates only for blocks with multimodal hashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

struct RouterHashing {
  std::uint32_t block_size = 0;
  SaltHash seed = kNoSalt;
  bool eagle = false;
};

// The number of full windows in `tokens` tokens; 0 if the block size is 0.
[[nodiscard]] std::size_t router_block_count(std::size_t tokens, const RouterHashing& hashing);

// Fills the front of `hashes` and returns their number. mm_hashes[i] are the multimodal hashes of block i; blocks beyond
// its end have none.
[[nodiscard]] Result<std::size_t> router_hashes(std::span<const Token> tokens, const RouterHashing& hashing,
                                                std::span<BlockHash> hashes,
                                                std::span<const std::vector<std::uint64_t>> mm_hashes = {});

// The token that replaces each placeholder of an item if hashes are made without multimodal information.
[[nodiscard]] constexpr Token mm_pad_token(std::uint64_t mm_hash) {
  return 1'000'000 + static_cast<Token>(mm_hash & ((1U << 30) - 1));
}

}  // namespace cairn
