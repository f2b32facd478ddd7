// LoadCostModel: how many of the blocks that could be loaded are worth it, because loading them takes less time than computing
// them again.
//
// Thread safety: worth_loading() must be safe to call from several threads. It is called under a lock and must not call Cairn.
// Ownership: shared with the manager.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/onboard/prefill_speed.h"

namespace cairn {

class PrefillMeter;

// Consecutive blocks that come from the same tier.
struct LoadRun {
  CacheLevel from = CacheLevel::kG2;
  std::uint32_t blocks = 0;
  std::uint64_t block_bytes = 0;
  double bytes_per_second = 0;    // recent speed of the slowest link on the way; 0 if it is not known yet
  std::uint64_t bytes_ahead = 0;  // in flight, pending and promised on that link
  double latency_seconds = 0;     // from the slowest link to the device
  // So many blocks may be loaded whatever they cost, to measure the link: its speed is not known, or may have changed.
  std::uint32_t probe_blocks = 0;
};

struct LoadQuestion {
  std::span<const LoadRun> runs;   // in the order of the prefix
  std::uint32_t block_size = 0;    // tokens
  std::uint32_t first_token = 0;   // position of the first run: later tokens take longer to compute
  std::uint32_t total_tokens = 0;  // of the sequence; 0 if that is not known
  bool engine_is_busy = false;     // once its blocks are loaded, the request waits until an iteration ends
};

class LoadCostModel {
 public:
  virtual ~LoadCostModel() = default;
  // The number of blocks to load, from the first on. The rest is computed.
  [[nodiscard]] virtual std::uint32_t worth_loading(const LoadQuestion& question) const = 0;
};

// Runs are loaded one after the other, each at its measured speed and after the bytes ahead. Returns the number of blocks
// after which the first token comes soonest; of equals the larger. Of a link whose speed is not known only the blocks that
// measure it are loaded, and nothing beyond them.
[[nodiscard]] std::uint32_t blocks_worth_loading(const PrefillEstimate& prefill, const LoadQuestion& question);

// The engine prefills at this speed, a little slower the longer the context is. Loads everything if the speed is 0.
[[nodiscard]] std::shared_ptr<const LoadCostModel> measured_cost_model(double prefill_tokens_per_second);
// The engine prefills as the meter says. Loads everything as long as the meter has no estimate.
[[nodiscard]] std::shared_ptr<const LoadCostModel> metered_cost_model(std::shared_ptr<const PrefillMeter> meter);
// Everything is worth loading.
[[nodiscard]] std::shared_ptr<const LoadCostModel> load_everything();

}  // namespace cairn
