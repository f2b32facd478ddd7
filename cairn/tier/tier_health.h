// TierHealth: whether one direction of one tier (reading or writing) may be used. After some failures in a row the direction is
// out of use: callers see misses and do not wait. After a wait one trial is let through: if it succeeds the direction is back in
// use, if not the wait doubles.
//
// A transfer that brought only wrong bytes counts as a failure; at least two of them take the direction out, so that one bad
// block never does. If transfers bring right and wrong blocks, recent blocks decide: the direction is out of use if at least a
// quarter of the last 128 or so, and no fewer than 16, were wrong.
//
// Thread safety: any thread. One lock; nothing else is called under it.
// Ownership: a Tier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/tier/tier_status.h"

namespace cairn {

class TierHealth {
 public:
  using Options = TierHealthOptions;
  using Report = TierHealthReport;
  enum class Change : std::uint8_t { kNone, kOut, kBack };

  explicit TierHealth(const Options& options) : options_(options) {}

  // If it returns true while the direction is out of use, the caller is the trial and has to report how it went.
  [[nodiscard]] bool may_use(TimePoint now);
  // Whether it is in use; begins no trial.
  [[nodiscard]] bool is_up() const;
  // Whether it is in use or its wait has ended; begins no trial. Another trial may be in flight.
  [[nodiscard]] bool may_be_tried(TimePoint now) const;
  Change succeeded();
  Change failed(const std::string& reason, TimePoint now);
  // Blocks of one transfer that were read and verified, at least one. A trial fails if a quarter of them were wrong.
  Change verified(std::uint64_t right, std::uint64_t wrong, const std::string& reason, TimePoint now);
  // The trial was not carried out, by no fault of the tier: the next caller may try.
  void not_tried();
  [[nodiscard]] Report report() const;

 private:
  [[nodiscard]] Change count_success() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Change count_failure(const std::string& reason, TimePoint now, bool take_out) CAIRN_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_{LockRank::kHealth};
  Report report_ CAIRN_GUARDED_BY(mutex_);
  std::uint32_t in_a_row_ CAIRN_GUARDED_BY(mutex_) = 0;
  // Blocks that were verified recently: both numbers are halved when there are many.
  std::uint64_t read_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t wrong_ CAIRN_GUARDED_BY(mutex_) = 0;
  Duration wait_ CAIRN_GUARDED_BY(mutex_) = Duration::zero();
  bool trial_ CAIRN_GUARDED_BY(mutex_) = false;  // one is in flight
};

}  // namespace cairn
