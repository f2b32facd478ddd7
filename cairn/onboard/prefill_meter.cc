#include "cairn/onboard/prefill_meter.h"

#include <algorithm>

namespace cairn {

namespace {

// Engines write this much KV cache per second, or less: 8 billion weights on one H100 4 GB, 70 billion on eight 8 GB.
constexpr double kAssumedBytesPerSecond = 10e9;
// A fit is good for a few more iterations once there are many.
constexpr std::uint64_t kManyIterations = 64;
constexpr std::uint64_t kIterationsAFit = 4;

}  // namespace

PrefillMeter::PrefillMeter(double pinned, double bytes_per_token)
    : pinned_(pinned),
      assumed_(
          PrefillEstimate::constant(pinned > 0 ? pinned : kAssumedBytesPerSecond / std::max(bytes_per_token, 1.0))) {}

void PrefillMeter::expect_iterations() {
  const MutexLock lock(mutex_);
  is_expected_ = true;
}

void PrefillMeter::add(const EngineIteration& iteration, TimePoint now) {
  const MutexLock lock(mutex_);
  is_expected_ = true;
  speed_.add(iteration, now);
}

PrefillStatus::Source PrefillMeter::source() const {
  using enum PrefillStatus::Source;
  if (pinned_ > 0) {
    return kPinned;
  }
  const std::uint64_t iterations = speed_.iterations();
  const std::uint64_t enough = iterations < kManyIterations ? 1 : kIterationsAFit;
  if (iterations - fitted_at_ >= enough) {
    fitted_at_ = iterations;
    if (std::optional<PrefillEstimate> fitted = speed_.fit()) {
      fitted_ = fitted;
    }
  }
  return fitted_ ? kLearned : is_expected_ ? kAssumed : kUnknown;
}

std::optional<PrefillEstimate> PrefillMeter::estimate() const {
  const MutexLock lock(mutex_);
  switch (source()) {
    case PrefillStatus::Source::kUnknown:
      return std::nullopt;
    case PrefillStatus::Source::kLearned:
      return fitted_;
    case PrefillStatus::Source::kAssumed:
    case PrefillStatus::Source::kPinned:
      break;
  }
  return assumed_;
}

PrefillStatus PrefillMeter::status() const {
  PrefillStatus status;
  const std::optional<PrefillEstimate> now = estimate();
  const MutexLock lock(mutex_);
  status.source = source();
  status.iterations = speed_.iterations();
  if (now) {
    status.tokens_per_second = now->tokens_per_second(0);
    status.tokens_per_second_at_32k = now->tokens_per_second(32768);
    status.seconds_per_iteration = now->seconds_per_iteration;
    status.tokens_per_iteration = now->tokens_per_iteration;
  }
  return status;
}

}  // namespace cairn
