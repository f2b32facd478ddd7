// LinkMeter: what a link has carried, how fast it is, and what is in flight on it.
//
// The speed is that of the latest transfers, by their bytes and the time that the link was busy with them. What was measured
// long ago counts less than what is measured now. The time that a rank holds a transfer back until its engine has reached a step
// is not the link's.
//
// Thread safety: any thread. One lock; nothing else is called under it.
// Ownership: a TierLink.
#pragma once

#include <cstdint>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/metrics.h"
#include "cairn/base/mutex.h"
#include "cairn/tier/tier_status.h"

namespace cairn {

class LinkMeter {
 public:
  // The outcomes of the blocks of one transfer.
  struct Counts {
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
    std::uint64_t mismatched = 0;
    std::uint64_t expired = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t gone = 0;  // counted as cancelled
  };

  // Records the duration of each transfer there too. Call it before the first one.
  void record_into(Histogram& seconds) { seconds_ = &seconds; }

  struct Submitted {
    std::uint64_t blocks = 0;
    std::uint64_t block_bytes = 0;  // of one block
    TimePoint at{};
    bool may_be_held = false;  // until the engine has reached a step: how long it is in flight tells nothing
  };
  void began(const Submitted& transfer);
  // The transfer was not accepted: undoes began().
  void refused(const Submitted& transfer, TimePoint now);
  // `copied`: how long the copy itself took; std::nullopt if it began when it was submitted.
  void ended(const Submitted& transfer, const Counts& counts, std::optional<Duration> copied, TimePoint now);
  void quarantined(std::int64_t blocks);
  // Nothing touches the memory of a transfer any more.
  void settled();

  [[nodiscard]] LinkTotals totals() const;
  // Recent speed while it was busy; 0 if nothing was carried yet.
  [[nodiscard]] double bytes_per_second() const;
  struct Estimate {
    double bytes_per_second = 0;  // 0 if nothing was carried yet; less than was measured while transfers are overdue
    std::uint64_t bytes_in_flight = 0;
    Duration age = Duration::zero();  // since the speed was last measured
  };
  [[nodiscard]] Estimate estimate(TimePoint now) const;

 private:
  void leave(const Submitted& transfer, TimePoint now) CAIRN_REQUIRES(mutex_);

  Histogram* seconds_ = nullptr;
  mutable Mutex mutex_{LockRank::kHealth};
  LinkTotals totals_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t transfers_in_flight_ CAIRN_GUARDED_BY(mutex_) = 0;
  TimePoint busy_since_ CAIRN_GUARDED_BY(mutex_) = TimePoint::zero();
  // Of the transfers in flight, those that are not held back.
  struct Unheld {
    std::uint64_t transfers = 0;
    std::uint64_t bytes = 0;
    TimePoint since{};
  };
  Unheld unheld_ CAIRN_GUARDED_BY(mutex_);
  TimePoint last_end_ CAIRN_GUARDED_BY(mutex_) = TimePoint::zero();
  struct Carried {
    double bytes = 0;
    double seconds = 0;
  };
  [[nodiscard]] Carried recently() const CAIRN_REQUIRES(mutex_);
  Carried before_ CAIRN_GUARDED_BY(mutex_);  // the newest counting most
  // Since the link was last idle, or for a while. Transfers that go on beside each other may end together: only all of them
  // tell how fast the link is.
  Carried now_ CAIRN_GUARDED_BY(mutex_);
  TimePoint measured_at_ CAIRN_GUARDED_BY(mutex_) = TimePoint::zero();
};

}  // namespace cairn
