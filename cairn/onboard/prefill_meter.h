// PrefillMeter: how fast the engine prefills: as the configuration says, as learned from its iterations, or as assumed until
// enough of them are known.
//
// Thread safety: any thread. One lock; nothing else is called under it.
// Ownership: shared by a manager and its cost model.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/onboard/load_request.h"
#include "cairn/onboard/prefill_speed.h"

namespace cairn {

class PrefillMeter {
 public:
  // `pinned`: tokens per second, whatever is reported; 0 to learn. `bytes_per_token`: of the KV cache; larger models, which
  // are slower, have more of them.
  PrefillMeter(double pinned, double bytes_per_token);

  // Iterations will be reported: until there are enough, the engine is assumed to be fast, so that only what surely loads
  // faster is loaded. If nothing is expected and nothing was reported, estimate() is std::nullopt.
  void expect_iterations() CAIRN_EXCLUDES(mutex_);
  void add(const EngineIteration& iteration, TimePoint now) CAIRN_EXCLUDES(mutex_);

  [[nodiscard]] std::optional<PrefillEstimate> estimate() const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] PrefillStatus status() const CAIRN_EXCLUDES(mutex_);

 private:
  [[nodiscard]] PrefillStatus::Source source() const CAIRN_REQUIRES(mutex_);

  const double pinned_;
  const PrefillEstimate assumed_;
  mutable Mutex mutex_{LockRank::kHealth};
  PrefillSpeed speed_ CAIRN_GUARDED_BY(mutex_);
  bool is_expected_ CAIRN_GUARDED_BY(mutex_) = false;
  // The latest fit, and how many iterations there were then.
  mutable std::optional<PrefillEstimate> fitted_ CAIRN_GUARDED_BY(mutex_);
  mutable std::uint64_t fitted_at_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
