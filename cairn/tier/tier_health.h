// TierHealth: whether one direction of one tier (reading it, writing it) may be used.
//
// Does:     after so many failures in a row the direction is out: callers see misses, not waits. When the wait is over one
//           trial is let through: if it succeeds the direction is up again, if not the wait doubles.
// Garbage:  a copy that brought nothing but wrong bytes is a failure in the row (two at least take it out, so that one bad
//           block never does). Copies that bring both are judged by the blocks of late: it is out when a quarter of the
//           last 128 or so were wrong, and no fewer than 16.
// Owner:    a Tier. Threads: any; one lock that nothing is called under.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"

namespace cairn {

class TierHealth {
 public:
  struct Options {
    std::uint32_t failures = 3;  // in a row
    Duration first_wait = std::chrono::seconds(1);
    Duration longest_wait = std::chrono::minutes(1);
  };
  struct Report {
    bool is_up = true;
    std::uint64_t failures = 0;   // since it was made
    std::uint64_t times_out = 0;  // that it was taken out
    std::optional<TimePoint> out_since = {};
    std::optional<TimePoint> next_trial = {};
    std::string reason = {};  // of the last failure
  };
  enum class Change : std::uint8_t { kNone, kOut, kBack };

  explicit TierHealth(const Options& options) : options_(options) {}

  // False: leave it alone. True while it is out means that this caller is the trial, and says how it went.
  [[nodiscard]] bool may_use(TimePoint now);
  // Whether it is up, without asking for the trial.
  [[nodiscard]] bool is_up() const;
  // Whether it is up or its wait is over, without asking for the trial: somebody else's may be under way.
  [[nodiscard]] bool may_be_tried(TimePoint now) const;
  Change succeeded();
  Change failed(const std::string& reason, TimePoint now);
  // Blocks of one copy that were read and verified, at least one. A trial fails if a quarter of them were wrong.
  Change verified(std::uint64_t right, std::uint64_t wrong, const std::string& reason, TimePoint now);
  // A trial that came to nothing, by no fault of the tier: the next caller may try.
  void not_tried();
  [[nodiscard]] Report report() const;

 private:
  [[nodiscard]] Change count_success() CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Change count_failure(const std::string& reason, TimePoint now, bool take_out) CAIRN_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_{LockRank::kHealth};
  Report report_ CAIRN_GUARDED_BY(mutex_);
  std::uint32_t in_a_row_ CAIRN_GUARDED_BY(mutex_) = 0;
  // Blocks that were verified of late: both are halved when there are many.
  std::uint64_t read_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t wrong_ CAIRN_GUARDED_BY(mutex_) = 0;
  Duration wait_ CAIRN_GUARDED_BY(mutex_) = Duration::zero();
  bool trial_ CAIRN_GUARDED_BY(mutex_) = false;  // one is under way
};

}  // namespace cairn
