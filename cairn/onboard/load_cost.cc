#include "cairn/onboard/load_cost.h"

#include <array>

namespace cairn {

namespace {

// Of a token's computation one part is the same wherever it stands, the other, attention, grows with what stands before
// it. For models of 8 to 70 billion weights both are equal at 30 to 60 thousand tokens: there a token takes twice as long.
constexpr double kContextOfTwiceTheTime = 65536;

class Measured final : public LoadCostModel {
 public:
  explicit Measured(double tokens_per_second) : tokens_per_second_(tokens_per_second) {}

  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    // What loading so many blocks saves, compared with none: what they take to load less what they take to compute.
    double cost = 0;
    double least = 0;
    std::uint32_t blocks = 0;
    std::uint32_t best = 0;
    std::array<bool, kCacheLevels> is_queued = {};
    for (const LoadStretch& stretch : question.stretches) {
      if (stretch.bytes_per_second > 0 && stretch.blocks > 0 && !is_queued[index_of(stretch.from)]) {
        is_queued[index_of(stretch.from)] = true;
        cost += static_cast<double>(stretch.bytes_ahead) / stretch.bytes_per_second;
      }
      const double seconds_a_block =
          stretch.bytes_per_second > 0 ? static_cast<double>(stretch.block_bytes) / stretch.bytes_per_second : 0;
      for (std::uint32_t i = 0; i < stretch.blocks; ++i) {
        cost += seconds_a_block - seconds_to_compute(question, blocks);
        ++blocks;
        if (cost <= least) {
          least = cost;
          best = blocks;
        }
      }
    }
    return best;
  }

 private:
  [[nodiscard]] double seconds_to_compute(const LoadQuestion& question, std::uint32_t block) const {
    const double context = question.first_token + static_cast<double>(block) * question.block_size;
    return question.block_size / tokens_per_second_ * (1 + context / kContextOfTwiceTheTime);
  }

  const double tokens_per_second_;
};

class Everything final : public LoadCostModel {
 public:
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    std::uint32_t blocks = 0;
    for (const LoadStretch& stretch : question.stretches) {
      blocks += stretch.blocks;
    }
    return blocks;
  }
};

}  // namespace

std::shared_ptr<const LoadCostModel> measured_cost_model(double prefill_tokens_per_second) {
  // An engine whose pace is not known is not compared with.
  return prefill_tokens_per_second > 0 ? std::make_shared<const Measured>(prefill_tokens_per_second)
                                       : load_everything();
}

std::shared_ptr<const LoadCostModel> load_everything() { return std::make_shared<const Everything>(); }

}  // namespace cairn
