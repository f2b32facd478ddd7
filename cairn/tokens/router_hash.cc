#include "cairn/tokens/router_hash.h"

#include <algorithm>

#include "cairn/tokens/block_run.h"
#include "cairn/tokens/mm_frames.h"

namespace cairn {

std::size_t router_block_count(std::size_t tokens, const RouterHashing& hashing) {
  const std::size_t overhang = hashing.eagle ? 1 : 0;
  return hashing.block_size == 0 || tokens < overhang ? 0 : (tokens - overhang) / hashing.block_size;
}

Result<std::size_t> router_hashes(std::span<const Token> tokens, const RouterHashing& hashing,
                                  std::span<BlockHash> hashes, std::span<const std::vector<std::uint64_t>> mm_hashes) {
  CAIRN_TRY(internal::check_block_size(hashing.block_size));
  const std::size_t count = router_block_count(tokens.size(), hashing);
  CAIRN_TRY(internal::check_room(count, hashes.size(), "block hashes"));
  const std::size_t window_size = std::size_t{hashing.block_size} + (hashing.eagle ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<const Token> window = tokens.subspan(i * hashing.block_size, window_size);
    if (i < mm_hashes.size() && !mm_hashes[i].empty()) {
      std::vector<std::uint64_t> sorted = mm_hashes[i];
      std::sort(sorted.begin(), sorted.end());
      hashes[i] = BlockHash{internal::hash_with_words(window, sorted, hashing.seed)};
    } else {
      hashes[i] = hash_block(window, hashing.seed);
    }
  }
  return count;
}

}  // namespace cairn
