// ModelShape: the sizes of the model that the engine runs, and the seed of its weights.
//
// Small enough that thousands of tokens are computed in a second on one core, and of the shape of the real ones: grouped
// query heads, rotary positions, a gated feed-forward part.
#pragma once

#include <cstdint>

namespace cairn::engine {

using TokenId = std::uint32_t;

inline constexpr std::uint32_t kBlockTokens = 16;
inline constexpr std::uint32_t kHeadSize = 16;

struct ModelShape {
  std::uint32_t layers = 4;
  std::uint32_t hidden = 64;
  std::uint32_t query_heads = 8;
  std::uint32_t kv_heads = 4;
  std::uint32_t feed_forward = 128;
  std::uint32_t vocabulary = 512;
  std::uint32_t max_positions = 1024;
  std::uint64_t seed = 1;
};

// The heads of one of `ranks` equal parts. Requires: ranks divides kv_heads.
struct HeadPart {
  std::uint32_t first_query_head = 0;
  std::uint32_t query_heads = 0;
  std::uint32_t first_kv_head = 0;
  std::uint32_t kv_heads = 0;
};
[[nodiscard]] constexpr HeadPart head_part(const ModelShape& config, std::uint32_t rank, std::uint32_t ranks) {
  const std::uint32_t query_heads = config.query_heads / ranks;
  const std::uint32_t kv_heads = config.kv_heads / ranks;
  return {rank * query_heads, query_heads, rank * kv_heads, kv_heads};
}

}  // namespace cairn::engine
