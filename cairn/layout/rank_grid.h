// RankGrid: how the ranks of an engine split a model: `pipeline` stages of consecutive layers, and in each stage `tensor` ranks
// that split the heads. Rank number = stage x tensor + tensor rank, as in vLLM.
//
//   RankGrid(4)      4 ranks, each with a quarter of the heads of all layers
//   RankGrid(2, 2)   ranks 0 and 1 have the first layers, ranks 2 and 3 the last
//
// Heads are dealt in order, the same number to each tensor rank. If there are more tensor ranks than heads (few K/V heads; MLA
// and states have one), each head is on several consecutive ranks, which are replicas: they hold the same bytes.
// Stages may have different numbers of layers.
//
// Thread safety: pure values and functions.
// Errors:        every message names the rank or stage and the numbers that do not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"

namespace cairn {

struct RankGrid {
  std::uint32_t tensor = 1;
  std::uint32_t pipeline = 1;

  constexpr RankGrid() = default;
  // From one number, so that an engine with tensor parallelism alone can say `.ranks = 4`.
  constexpr RankGrid(std::uint32_t tensor_ranks, std::uint32_t stages = 1)  // NOLINT(google-explicit-constructor)
      : tensor(tensor_ranks), pipeline(stages) {}

  // Neither number is 0, and there are at most 65,536 ranks.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] std::uint32_t count() const { return tensor * pipeline; }
  [[nodiscard]] std::uint32_t stage_of(std::uint32_t rank) const { return rank / tensor; }
  [[nodiscard]] std::uint32_t tensor_rank_of(std::uint32_t rank) const { return rank % tensor; }
  // "4 ranks", "4 ranks (2 tensor x 2 pipeline)"
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const RankGrid&, const RankGrid&) = default;
};

// What one of `ranks` tensor ranks has of `whole_heads` heads.
struct HeadShare {
  std::uint32_t first_head = 0;
  std::uint32_t heads = 0;
  std::uint32_t replica = 0;   // index among the ranks that have the same heads
  std::uint32_t replicas = 1;  // ranks that have the same heads
  friend bool operator==(const HeadShare&, const HeadShare&) = default;
};
// Fails if neither of heads and ranks divides the other.
[[nodiscard]] Result<HeadShare> share_of(std::uint32_t rank, std::uint32_t ranks, std::uint32_t whole_heads);

// The layers of one stage.
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  [[nodiscard]] std::uint32_t end() const { return first + count; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};
// The layers of a stage if the engine does not say: as equal as possible, and as vLLM does it: the last stage but one gets the
// first of the remaining layers, the stage before it the second, and so on.
[[nodiscard]] LayerRange even_layers(std::uint32_t stage, std::uint32_t stages, std::uint32_t whole_layers);
// Whether the stages that are known (one element for each stage) do not overlap, are in order and within the model and, if all
// are known, leave out no layer.
[[nodiscard]] Status check_stages(std::span<const std::optional<LayerRange>> stages, std::uint32_t whole_layers);

// What one rank has of a model.
struct RankShare {
  LayerRange layers = {};
  HeadShare heads = {};
  // Of the whole model, in the numbers of a KvShape.
  std::uint32_t whole_layers = 0;
  std::uint32_t whole_heads = 0;

  // `whole`: the shape of a block of the whole model. `layers`: std::nullopt for even_layers().
  [[nodiscard]] static Result<RankShare> make(const RankGrid& grid, std::uint32_t rank, const KvShape& whole,
                                              const std::optional<LayerRange>& layers = {});
  // The shape of the rank's part of a block.
  [[nodiscard]] KvShape shape(const KvShape& whole) const;
  // Names the part by what it holds, the same under every grid that has it: "l0-31.h4-7". Replicas have the same name.
  [[nodiscard]] std::string name() const;

  friend bool operator==(const RankShare&, const RankShare&) = default;
};

}  // namespace cairn
