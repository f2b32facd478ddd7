// ModelShape: the sizes of the model that the engine runs, and the seed of its weights.
//
// Small enough that thousands of tokens are computed in a second on one core, with the structure of real ones: grouped
// query heads, rotary positions, a gated feed-forward part. kv_heads = 2 is fewer than four ranks, and kv_heads = 1 with kv = 1
// has the structure of MLA: every rank of a stage holds the same keys and values.
#pragma once

#include <cstdint>

#include "cairn/layout/rank_grid.h"

namespace cairn::engine {

using TokenId = std::uint32_t;

inline constexpr std::uint32_t kBlockTokens = 16;
inline constexpr std::uint32_t kHeadSize = 16;

struct ModelShape {
  std::uint32_t layers = 4;
  std::uint32_t hidden = 64;
  std::uint32_t query_heads = 8;
  std::uint32_t kv_heads = 4;
  std::uint32_t kv = 2;  // 1: one tensor is both keys and values, as with MLA
  std::uint32_t feed_forward = 128;
  std::uint32_t vocabulary = 512;
  std::uint32_t max_positions = 1024;
  std::uint64_t seed = 1;
};

// What a rank has of the model.
struct ModelPart {
  LayerRange layers = {};
  std::uint32_t first_query_head = 0;
  std::uint32_t query_heads = 0;
  std::uint32_t first_kv_head = 0;
  std::uint32_t kv_heads = 0;
};
// Requires: ranks.tensor divides query_heads; one of ranks.tensor and kv_heads divides the other.
[[nodiscard]] inline ModelPart part_of(const ModelShape& model, const RankGrid& ranks, std::uint32_t rank) {
  const std::uint32_t tensor_rank = ranks.tensor_rank_of(rank);
  const std::uint32_t query_heads = model.query_heads / ranks.tensor;
  const HeadShare kv = *share_of(tensor_rank, ranks.tensor, model.kv_heads);
  return {.layers = even_layers(ranks.stage_of(rank), ranks.pipeline, model.layers),
          .first_query_head = tensor_rank * query_heads,
          .query_heads = query_heads,
          .first_kv_head = kv.first_head,
          .kv_heads = kv.heads};
}

}  // namespace cairn::engine
