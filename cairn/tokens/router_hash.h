// Local block hashes as routers compute them from the tokens of a request, to look up what engines' events announced.
//
// Does:     hashes each full block by itself, not chained: the block hash of hashes.h, seeded with
//           salt_hash(cache namespace, lora name). An Eagle window has one token more than a block and still advances
//           by a block. Multimodal hashes of a block, sorted, follow its tokens as little-endian u64.
//           Unlike hashes.h this knows nothing of runs: the two disagree on multimodal blocks, as their users do.
// Threads:  pure functions. router_hashes allocates only for blocks with multimodal hashes.
// Fails:    with nothing written: a block size of 0, an output too small.
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

// How many windows of `tokens` tokens are full. Requires: a block size above 0.
[[nodiscard]] std::size_t router_block_count(std::size_t tokens, const RouterHashing& hashing);

// Fills the front of `hashes`; returns how many. mm_hashes[i] are those of block i; blocks beyond its end have none.
[[nodiscard]] Result<std::size_t> router_hashes(std::span<const Token> tokens, const RouterHashing& hashing,
                                                std::span<BlockHash> hashes,
                                                std::span<const std::vector<std::uint64_t>> mm_hashes = {});

// What stands in for each placeholder token of an item where hashes are made without multimodal information.
[[nodiscard]] constexpr Token mm_pad_token(std::uint64_t mm_hash) {
  return 1'000'000 + static_cast<Token>(mm_hash & ((1U << 30) - 1));
}

}  // namespace cairn
