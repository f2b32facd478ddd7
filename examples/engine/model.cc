#include "examples/engine/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cairn/base/check.h"
#include "examples/engine/random.h"

namespace cairn::engine {
namespace {

// Larger than 1, so that random weights make text that does not settle into one token.
constexpr float kGain = 1.5F;

// out += factor * weights. Most of the time goes here, so sanitizers are kept out; multiply() checks the sizes.
[[gnu::no_sanitize("address", "undefined")]] void add_row(float factor, const float* weights, std::size_t columns,
                                                          float* out) {
  for (std::size_t j = 0; j < columns; ++j) {
    out[j] += factor * weights[j];
  }
}

// out = row * matrix. Each output is one sum in the order of the row, independent of the other columns: the loop over
// columns is the inner one.
void multiply(std::span<const float> row, std::span<const float> matrix, std::span<float> out) {
  CAIRN_CHECK(matrix.size() == row.size() * out.size(), "a matrix with a row for each input, a column for each output");
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::size_t i = 0; i < row.size(); ++i) {
    add_row(row[i], matrix.data() + i * out.size(), out.size(), out.data());
  }
}

// Four partial sums: a fixed order, without one long chain of additions.
float dot(const float* left, const float* right, std::uint32_t size) {
  float sums[4] = {0, 0, 0, 0};
  for (std::uint32_t i = 0; i < size; i += 4) {
    for (std::uint32_t lane = 0; lane < 4; ++lane) {
      sums[lane] += left[i + lane] * right[i + lane];
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

void normalize(std::span<const float> row, std::span<float> out) {
  const float mean =
      dot(row.data(), row.data(), static_cast<std::uint32_t>(row.size())) / static_cast<float>(row.size());
  const float scale = 1.0F / std::sqrt(mean + 1e-6F);
  for (std::size_t i = 0; i < row.size(); ++i) {
    out[i] = row[i] * scale;
  }
}

std::vector<float> random_matrix(Random& random, std::uint32_t rows, std::uint32_t columns) {
  const float scale = kGain * std::sqrt(3.0F / static_cast<float>(rows));
  std::vector<float> matrix(std::size_t{rows} * columns);
  for (float& weight : matrix) {
    weight = random.symmetric() * scale;
  }
  return matrix;
}

std::vector<float> some_columns(const std::vector<float>& matrix, std::uint32_t columns, std::uint32_t first,
                                std::uint32_t count) {
  std::vector<float> part;
  part.reserve(matrix.size() / columns * count);
  for (std::size_t row = 0; row < matrix.size() / columns; ++row) {
    const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row * columns + first);
    part.insert(part.end(), begin, begin + count);
  }
  return part;
}

std::span<float> row_of(std::vector<float>& matrix, std::size_t row, std::size_t columns) {
  return std::span<float>(matrix).subspan(row * columns, columns);
}

}  // namespace

ModelShard::ModelShard(const ModelShape& config, std::uint32_t rank, const RankGrid& ranks, std::uint32_t device_blocks)
    : config_(config), device_blocks_(device_blocks), part_(part_of(config, ranks, rank)) {
  CAIRN_CHECK(config.query_heads % ranks.tensor == 0 && rank < ranks.count(), "each rank has as many query heads");
  make_weights();
  make_rotations();
  const std::size_t floats = std::size_t{config.kv} * device_blocks * kBlockTokens * part_.kv_heads * kHeadSize;
  kv_.assign(part_.layers.count, std::vector<float>(floats));
  query_.resize(std::size_t{part_.query_heads} * kHeadSize);
  scores_.resize(config.max_positions);
}

void ModelShard::make_weights() {
  // Every rank draws all numbers and keeps its layers and columns: the weights of a head do not depend on which rank has it.
  Random random(config_.seed);
  const std::uint32_t queries = config_.query_heads * kHeadSize;
  const std::uint32_t keys = config_.kv_heads * kHeadSize;
  embedding_ = random_matrix(random, config_.vocabulary, config_.hidden);
  const float to_unit = std::sqrt(static_cast<float>(config_.vocabulary));
  std::transform(embedding_.begin(), embedding_.end(), embedding_.begin(), [&](float x) { return x * to_unit; });
  for (std::uint32_t i = 0; i < config_.layers; ++i) {
    const auto query = random_matrix(random, config_.hidden, queries);
    const auto key = random_matrix(random, config_.hidden, keys);
    const auto value = random_matrix(random, config_.hidden, keys);
    Layer layer;
    layer.query = some_columns(query, queries, part_.first_query_head * kHeadSize, part_.query_heads * kHeadSize);
    layer.key = some_columns(key, keys, part_.first_kv_head * kHeadSize, part_.kv_heads * kHeadSize);
    layer.value = some_columns(value, keys, part_.first_kv_head * kHeadSize, part_.kv_heads * kHeadSize);
    layer.output = random_matrix(random, queries, config_.hidden);
    layer.gate = random_matrix(random, config_.hidden, config_.feed_forward);
    layer.up = random_matrix(random, config_.hidden, config_.feed_forward);
    layer.down = random_matrix(random, config_.feed_forward, config_.hidden);
    if (part_.layers.first <= i && i < part_.layers.end()) {
      layers_.push_back(std::move(layer));
    }
  }
  unembedding_ = random_matrix(random, config_.hidden, config_.vocabulary);
}

void ModelShard::make_rotations() {
  const std::uint32_t pairs = kHeadSize / 2;
  for (std::uint32_t position = 0; position < config_.max_positions; ++position) {
    for (std::uint32_t pair = 0; pair < pairs; ++pair) {
      const double speed = std::pow(10000.0, -static_cast<double>(pair) / pairs);
      cosines_.push_back(static_cast<float>(std::cos(position * speed)));
      sines_.push_back(static_cast<float>(std::sin(position * speed)));
    }
  }
}

void ModelShard::rotate(std::span<float> heads, std::uint32_t position) const {
  const std::uint32_t pairs = kHeadSize / 2;
  const float* cosines = cosines_.data() + std::size_t{position} * pairs;
  const float* sines = sines_.data() + std::size_t{position} * pairs;
  for (std::size_t head = 0; head < heads.size(); head += kHeadSize) {
    for (std::uint32_t pair = 0; pair < pairs; ++pair) {
      float& left = heads[head + pair];
      float& right = heads[head + pair + pairs];
      const float turned = left * cosines[pair] - right * sines[pair];
      right = left * sines[pair] + right * cosines[pair];
      left = turned;
    }
  }
}

float* ModelShard::place(std::uint32_t layer, std::uint32_t which, DeviceBlock block, std::uint32_t offset) {
  const std::size_t token =
      (std::size_t{std::min(which, config_.kv - 1)} * device_blocks_ + block) * kBlockTokens + offset;
  return kv_[layer].data() + token * part_.kv_heads * kHeadSize;
}

void ModelShard::begin(const StepInput& input) {
  input_ = &input;
  const std::size_t rows = input.rows.size();
  hidden_.resize(rows * config_.hidden);
  normed_.resize(rows * config_.hidden);
  head_rows_.resize(rows * query_.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const auto embedded = row_of(embedding_, input.rows[row].token, config_.hidden);
    std::copy(embedded.begin(), embedded.end(), row_of(hidden_, row, config_.hidden).begin());
  }
}

std::span<const float> ModelShard::attend(std::uint32_t layer) {
  // Keys and values of all rows first: a row attends to earlier rows of the same step.
  for (std::size_t row = 0; row < input_->rows.size(); ++row) {
    const auto normed = row_of(normed_, row, config_.hidden);
    normalize(row_of(hidden_, row, config_.hidden), normed);
    store_kv(layer, input_->rows[row], normed);
  }
  for (std::size_t row = 0; row < input_->rows.size(); ++row) {
    attend_row(layer, input_->rows[row], row_of(normed_, row, config_.hidden), row_of(head_rows_, row, query_.size()));
  }
  return head_rows_;
}

void ModelShard::store_kv(std::uint32_t layer, const StepRow& row, std::span<const float> normed) {
  const DeviceBlock block = input_->tables[row.table][row.position / kBlockTokens];
  const std::uint32_t offset = row.position % kBlockTokens;
  const std::size_t width = std::size_t{part_.kv_heads} * kHeadSize;
  const std::span<float> keys(place(layer, 0, block, offset), width);
  multiply(normed, layers_[layer].key, keys);
  rotate(keys, row.position);
  if (config_.kv == 2) {
    multiply(normed, layers_[layer].value, std::span<float>(place(layer, 1, block, offset), width));
  }
}

void ModelShard::attend_row(std::uint32_t layer, const StepRow& row, std::span<const float> normed,
                            std::span<float> out) {
  multiply(normed, layers_[layer].query, query_);
  rotate(query_, row.position);
  for (std::uint32_t head = 0; head < part_.query_heads; ++head) {
    attend_head(layer, row, head, out.subspan(std::size_t{head} * kHeadSize, kHeadSize));
  }
}

void ModelShard::attend_head(std::uint32_t layer, const StepRow& row, std::uint32_t head, std::span<float> out) {
  const auto& table = input_->tables[row.table];
  const float* query = query_.data() + std::size_t{head} * kHeadSize;
  const std::size_t kv_offset = std::size_t{head / (part_.query_heads / part_.kv_heads)} * kHeadSize;
  const float scale = 1.0F / std::sqrt(static_cast<float>(kHeadSize));

  const std::size_t token_stride = std::size_t{part_.kv_heads} * kHeadSize;
  const std::uint32_t positions = row.position + 1;
  // Blocks in order, and the positions of each in order: the sums are the same as over contiguous keys and values.
  const auto for_each = [&](std::uint32_t which, auto&& visit) {
    for (std::uint32_t begin = 0; begin < positions; begin += kBlockTokens) {
      const float* token = place(layer, which, table[begin / kBlockTokens], 0) + kv_offset;
      for (std::uint32_t i = begin; i < std::min(begin + kBlockTokens, positions); ++i, token += token_stride) {
        visit(i, token);
      }
    }
  };

  float highest = -INFINITY;
  for_each(0, [&](std::uint32_t position, const float* key) {
    scores_[position] = dot(query, key, kHeadSize) * scale;
    highest = std::max(highest, scores_[position]);
  });
  std::array<float, kHeadSize> mixed = {};
  float sum = 0;
  for_each(1, [&](std::uint32_t position, const float* value) {
    const float weight = std::exp(scores_[position] - highest);
    sum += weight;
    for (std::uint32_t i = 0; i < kHeadSize; ++i) {
      mixed[i] += weight * value[i];
    }
  });
  std::transform(mixed.begin(), mixed.end(), out.begin(), [&](float element) { return element / sum; });
}

void ModelShard::finish_layer(std::uint32_t layer, std::span<const float> all_heads) {
  const Layer& weights = layers_[layer];
  const std::size_t width = std::size_t{config_.query_heads} * kHeadSize;
  std::vector<float> change(config_.hidden);
  std::vector<float> gate(config_.feed_forward);
  std::vector<float> up(config_.feed_forward);
  const auto add = [&](std::span<float> hidden) {
    std::transform(hidden.begin(), hidden.end(), change.begin(), hidden.begin(),
                   [](float x, float y) { return x + y; });
  };
  for (std::size_t row = 0; row < input_->rows.size(); ++row) {
    const auto hidden = row_of(hidden_, row, config_.hidden);
    const auto normed = row_of(normed_, row, config_.hidden);
    multiply(all_heads.subspan(row * width, width), weights.output, change);
    add(hidden);
    normalize(hidden, normed);
    multiply(normed, weights.gate, gate);
    multiply(normed, weights.up, up);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      up[i] *= std::max(gate[i], 0.0F);
    }
    multiply(up, weights.down, change);
    add(hidden);
  }
}

std::vector<Sample> ModelShard::samples() const {
  std::vector<Sample> samples;
  std::vector<float> normed(config_.hidden);
  std::vector<float> logits(config_.vocabulary);
  for (const std::uint32_t row : input_->sampled_rows) {
    normalize(std::span(hidden_).subspan(std::size_t{row} * config_.hidden, config_.hidden), normed);
    multiply(normed, unembedding_, logits);
    const auto best = std::max_element(logits.begin(), logits.end());
    samples.push_back({static_cast<TokenId>(best - logits.begin()), *best});
  }
  return samples;
}

std::vector<float> gather_heads(std::span<const std::span<const float>> parts, std::size_t rows) {
  std::vector<float> whole;
  for (std::size_t row = 0; row < rows; ++row) {
    for (const std::span<const float> part : parts) {
      const std::size_t width = part.size() / rows;
      const auto begin = part.begin() + static_cast<std::ptrdiff_t>(row * width);
      whole.insert(whole.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  }
  return whole;
}

}  // namespace cairn::engine
