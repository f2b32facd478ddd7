// ModelShard: one rank's part of the model: the weights of its layers, and the paged keys and values of its heads in them.
//
// Computes a step layer by layer: begin(), in later pipeline stages set_hidden(), then attend(l) and finish_layer(l) for each
// layer of this rank, counted from 0, then hidden() for the next stage or, in the last stage, samples(). Attention is computed
// for this rank's heads only; the outputs of the heads of all ranks of the stage are then gathered, and every rank computes
// everything else from all of them.
//
// A row's result has the same bits whatever else is in the step, however a prompt is cut into chunks, in whichever
// blocks its keys and values are, and on any grid of ranks: every sum has a fixed order, and no sum is taken over ranks.
//
// Thread safety: one thread at a time.
// Ownership: owns weights and buffers. The input of begin() must live until samples().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/engine/step.h"

namespace cairn::engine {

class ModelShard {
 public:
  // Requires: part_of()'s.
  ModelShard(const ModelShape& config, std::uint32_t rank, const RankGrid& ranks, std::uint32_t device_blocks);

  [[nodiscard]] const ModelShape& config() const { return config_; }
  [[nodiscard]] const ModelPart& part() const { return part_; }
  [[nodiscard]] std::uint32_t device_blocks() const { return device_blocks_; }
  // The keys and values of a layer: [kv, device_blocks, kBlockTokens, kv heads of this rank, kHeadSize].
  [[nodiscard]] std::span<float> kv_buffer(std::uint32_t layer) { return kv_[layer]; }

  void begin(const StepInput& input);
  // The output of the stage before for each row: [rows, hidden].
  void set_hidden(std::span<const float> hidden) { hidden_.assign(hidden.begin(), hidden.end()); }
  [[nodiscard]] std::span<const float> hidden() const { return hidden_; }
  // The outputs of this rank's heads for each row: [rows, query heads of this rank, kHeadSize].
  [[nodiscard]] std::span<const float> attend(std::uint32_t layer);
  // Takes the outputs of all heads: [rows, query heads of all ranks, kHeadSize].
  void finish_layer(std::uint32_t layer, std::span<const float> all_heads);
  [[nodiscard]] std::vector<Sample> samples() const;

 private:
  struct Layer {
    std::vector<float> query, key, value;  // [hidden, heads of this rank * kHeadSize]
    std::vector<float> output;             // [all query heads * head_size, hidden]
    std::vector<float> gate, up;           // [hidden, feed_forward]
    std::vector<float> down;               // [feed_forward, hidden]
  };

  void make_weights();
  void make_rotations();
  void rotate(std::span<float> heads, std::uint32_t position) const;
  // Where the keys (0) or values (1) of this rank's heads are for a token of a block; the same if kv is 1.
  [[nodiscard]] float* place(std::uint32_t layer, std::uint32_t which, DeviceBlock block, std::uint32_t offset);
  void store_kv(std::uint32_t layer, const StepRow& row, std::span<const float> normed);
  void attend_row(std::uint32_t layer, const StepRow& row, std::span<const float> normed, std::span<float> out);
  void attend_head(std::uint32_t layer, const StepRow& row, std::uint32_t head, std::span<float> out);

  ModelShape config_;
  std::uint32_t device_blocks_;
  ModelPart part_;
  std::vector<float> embedding_;    // [vocabulary, hidden]
  std::vector<float> unembedding_;  // [hidden, vocabulary]
  std::vector<Layer> layers_;
  std::vector<float> cosines_, sines_;  // [max_positions, kHeadSize / 2]
  std::vector<std::vector<float>> kv_;  // one buffer a layer

  const StepInput* input_ = nullptr;
  std::vector<float> hidden_;     // [rows, hidden]
  std::vector<float> normed_;     // [rows, hidden]
  std::vector<float> head_rows_;  // [rows, query heads of this rank, kHeadSize]
  std::vector<float> query_;      // of one row
  std::vector<float> scores_;     // of one head: one for each position
};

// Puts the parts of all ranks together: parts[r] is [rows, width], the whole [rows, ranks * width].
[[nodiscard]] std::vector<float> gather_heads(std::span<const std::span<const float>> parts, std::size_t rows);

}  // namespace cairn::engine
