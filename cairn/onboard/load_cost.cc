#include "cairn/onboard/load_cost.h"

#include <array>

namespace cairn {

namespace {

// The time to compute a token has a constant part and one that grows with its position (attention). For models of 8 to 70
// billion weights they are equal at 30 to 60 thousand tokens.
constexpr double kContextOfTwiceTheTime = 65536;

class Measured final : public LoadCostModel {
 public:
  explicit Measured(double tokens_per_second) : tokens_per_second_(tokens_per_second) {}

  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    // Of loading the first `blocks` blocks: the time to load them less the time to compute them.
    double cost = 0;
    double least = 0;
    std::uint32_t blocks = 0;
    std::uint32_t best = 0;
    std::array<bool, kCacheLevels> is_queued = {};
    for (const LoadRun& run : question.runs) {
      if (run.bytes_per_second > 0 && run.blocks > 0 && !is_queued[index_of(run.from)]) {
        is_queued[index_of(run.from)] = true;
        cost += static_cast<double>(run.bytes_ahead) / run.bytes_per_second;
      }
      const double seconds_a_block =
          run.bytes_per_second > 0 ? static_cast<double>(run.block_bytes) / run.bytes_per_second : 0;
      for (std::uint32_t i = 0; i < run.blocks; ++i) {
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
    for (const LoadRun& run : question.runs) {
      blocks += run.blocks;
    }
    return blocks;
  }
};

}  // namespace

std::shared_ptr<const LoadCostModel> measured_cost_model(double prefill_tokens_per_second) {
  return prefill_tokens_per_second > 0 ? std::make_shared<const Measured>(prefill_tokens_per_second)
                                       : load_everything();
}

std::shared_ptr<const LoadCostModel> load_everything() { return std::make_shared<const Everything>(); }

}  // namespace cairn
