#include "cairn/onboard/load_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "cairn/onboard/prefill_meter.h"

namespace cairn {

namespace {

std::uint32_t count_blocks(std::span<const LoadRun> runs) {
  std::uint32_t blocks = 0;
  for (const LoadRun& run : runs) {
    blocks += run.blocks;
  }
  return blocks;
}

bool is_unknown(const LoadRun& run) { return run.block_bytes > 0 && run.bytes_per_second <= 0; }

// The time to the first token if so many blocks are loaded: as a function of their number, with its smallest value so far.
class FirstToken {
 public:
  FirstToken(const PrefillEstimate& prefill, const LoadQuestion& question)
      : prefill_(prefill), question_(question), total_(question.total_tokens) {
    if (total_ == 0) {  // at least one token is computed
      total_ = question.first_token + std::uint64_t{count_blocks(question.runs)} * question.block_size + 1;
    }
    least_ = compute(0);
  }

  // The blocks of a run, of which the first one comes after `blocks` others and `seconds` of loading.
  void add(std::uint32_t blocks, double seconds, const LoadRun& run) {
    const double seconds_a_block =
        run.bytes_per_second > 0 ? static_cast<double>(run.block_bytes) / run.bytes_per_second : 0;
    const auto try_first = [&](std::uint32_t of_run) {
      const double time = prefill_.caution * (seconds + of_run * seconds_a_block) + compute(blocks + of_run);
      if (time <= least_) {
        least_ = time;
        best_ = blocks + of_run;
      }
    };
    // Later tokens take longer to compute, so that all of the run or nothing of it is best, unless part of it saves an
    // iteration.
    if (std::isfinite(prefill_.tokens_per_iteration) && prefill_.tokens_per_iteration >= question_.block_size) {
      const auto most = static_cast<std::uint64_t>(prefill_.tokens_per_iteration);
      const std::uint64_t first = token(blocks);
      const std::uint64_t end = token(blocks + run.blocks);
      // The first block boundary with at most n * most tokens to compute after it.
      for (std::uint64_t n = total_ > end ? (total_ - end) / most : 0; n * most < total_; ++n) {
        const std::uint64_t at = total_ - n * most;
        if (at <= first) {
          break;
        }
        const std::uint64_t of_run = (at - first + question_.block_size - 1) / question_.block_size;
        if (of_run < run.blocks) {
          try_first(static_cast<std::uint32_t>(of_run));
        }
      }
    }
    try_first(run.blocks);
  }
  [[nodiscard]] std::uint32_t best() const { return best_; }

 private:
  [[nodiscard]] std::uint64_t token(std::uint32_t blocks) const {
    return question_.first_token + std::uint64_t{blocks} * question_.block_size;
  }
  [[nodiscard]] double compute(std::uint32_t blocks) const { return prefill_.seconds(token(blocks), total_); }

  const PrefillEstimate& prefill_;
  const LoadQuestion& question_;
  std::uint64_t total_;
  double least_ = 0;
  std::uint32_t best_ = 0;
};

class Everything final : public LoadCostModel {
 public:
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    return count_blocks(question.runs);
  }
};

class Metered final : public LoadCostModel {
 public:
  explicit Metered(std::shared_ptr<const PrefillMeter> meter) : meter_(std::move(meter)) {}
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    const std::optional<PrefillEstimate> prefill = meter_->estimate();
    return prefill ? blocks_worth_loading(*prefill, question) : count_blocks(question.runs);
  }

 private:
  const std::shared_ptr<const PrefillMeter> meter_;
};

}  // namespace

std::uint32_t blocks_worth_loading(const PrefillEstimate& prefill, const LoadQuestion& question) {
  FirstToken first_token(prefill, question);
  double seconds = 0;
  std::uint32_t blocks = 0;
  std::array<bool, kCacheLevels> is_queued = {};
  bool is_delayed = false;
  for (const LoadRun& run : question.runs) {
    if (is_unknown(run)) {
      break;
    }
    if (run.bytes_per_second > 0 && run.blocks > 0 && !is_queued[index_of(run.from)]) {
      is_queued[index_of(run.from)] = true;
      seconds += static_cast<double>(run.bytes_ahead) / run.bytes_per_second + run.latency_seconds;
      seconds += question.engine_is_busy && !std::exchange(is_delayed, true) ? prefill.seconds_until_next : 0;
    }
    first_token.add(blocks, seconds, run);
    blocks += run.blocks;
    seconds += run.bytes_per_second > 0 ? static_cast<double>(run.block_bytes) * run.blocks / run.bytes_per_second : 0;
  }
  // A link that has to be measured is used for that, if the load gets to it.
  std::uint32_t best = first_token.best();
  std::uint32_t begin = 0;
  for (const LoadRun& run : question.runs) {
    if (best == begin && run.blocks > 0) {
      best += std::min(run.probe_blocks, run.blocks);
      break;
    }
    begin += run.blocks;
  }
  return best;
}

std::shared_ptr<const LoadCostModel> measured_cost_model(double prefill_tokens_per_second) {
  return prefill_tokens_per_second > 0
             ? metered_cost_model(std::make_shared<const PrefillMeter>(prefill_tokens_per_second, 0))
             : load_everything();
}

std::shared_ptr<const LoadCostModel> metered_cost_model(std::shared_ptr<const PrefillMeter> meter) {
  return std::make_shared<const Metered>(std::move(meter));
}

std::shared_ptr<const LoadCostModel> load_everything() { return std::make_shared<const Everything>(); }

}  // namespace cairn
