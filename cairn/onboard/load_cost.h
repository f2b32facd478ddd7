// LoadCostModel: how many of the blocks that could be loaded are worth it: loading them takes time, and so does computing
// them again.
//
// Owner:    the manager; shared with whoever asks. Threads: any; it must be safe from several. It is asked under a lock, and
//           calls nothing of Cairn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"

namespace cairn {

// Blocks that follow each other and come the same way.
struct LoadStretch {
  CacheLevel from = CacheLevel::kG2;
  std::uint32_t blocks = 0;
  std::uint64_t block_bytes = 0;
  double bytes_per_second = 0;    // of the way, as measured of late; 0: not known yet
  std::uint64_t bytes_ahead = 0;  // that wait for the same way
};

struct LoadQuestion {
  std::span<const LoadStretch> stretches;  // in the order of the prefix
  std::uint32_t block_size = 0;            // tokens
  std::uint32_t first_token = 0;           // where the first stretch begins: computing a later token costs more
};

class LoadCostModel {
 public:
  virtual ~LoadCostModel() = default;
  // How many blocks from the first on are to be loaded; the rest is computed.
  [[nodiscard]] virtual std::uint32_t worth_loading(const LoadQuestion& question) const = 0;
};

// Stretches are loaded one after the other, each at the speed and behind the queue that were measured; computing goes at
// the engine's pace: so many tokens a second, a little slower the longer the context is. The number of blocks after which
// the first token comes soonest; of equals the larger. A way whose speed is not known yet is tried.
[[nodiscard]] std::shared_ptr<const LoadCostModel> measured_cost_model(double prefill_tokens_per_second);
// Everything that can be loaded is.
[[nodiscard]] std::shared_ptr<const LoadCostModel> load_everything();

}  // namespace cairn
