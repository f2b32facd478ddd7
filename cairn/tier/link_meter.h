// LinkMeter: what a link has carried, how fast it is, and what is waiting in it.
//
// Owner:    a TierLink. Threads: any; one lock that nothing is called under.
#pragma once

#include <cstdint>

#include "cairn/base/clock.h"
#include "cairn/base/metrics.h"
#include "cairn/base/mutex.h"

namespace cairn {

struct LinkTotals {
  std::uint64_t copies = 0;
  std::uint64_t blocks = 0;  // that arrived
  std::uint64_t bytes = 0;   // of those
  std::uint64_t failed = 0;  // blocks
  std::uint64_t mismatched = 0;
  std::uint64_t expired = 0;
  std::uint64_t cancelled = 0;
  Duration busy = Duration::zero();  // while at least one copy was under way
  std::uint64_t blocks_under_way = 0;
  std::uint64_t bytes_under_way = 0;
  std::uint64_t quarantined = 0;  // blocks that a late copy may still touch
  std::uint64_t unsettled = 0;    // copies whose memory is not let go of yet, under way or late
};

class LinkMeter {
 public:
  // What became of the blocks of one copy.
  struct Counts {
    std::uint64_t done = 0;
    std::uint64_t failed = 0;
    std::uint64_t mismatched = 0;
    std::uint64_t expired = 0;
    std::uint64_t cancelled = 0;
  };

  // How long each copy takes is recorded there too. Before the first one.
  void record_into(Histogram& seconds) { seconds_ = &seconds; }

  // `bytes`: of all blocks.
  void began(std::uint64_t blocks, std::uint64_t bytes, TimePoint now);
  // What began was not accepted: as if it had not.
  void refused(std::uint64_t blocks, std::uint64_t bytes, TimePoint now);
  // `block_bytes`: of one block.
  void ended(const Counts& counts, std::uint64_t blocks, std::uint64_t block_bytes, TimePoint began, TimePoint now);
  void quarantined(std::int64_t blocks);
  // Nothing touches its memory any more.
  void settled();

  [[nodiscard]] LinkTotals totals() const;
  // Of late, while it was busy; 0 where nothing was carried yet.
  [[nodiscard]] double bytes_per_second() const;
  // Until so many more bytes, submitted now, would have arrived; nothing where the speed is not known yet.
  [[nodiscard]] Duration time_for(std::uint64_t bytes) const;

 private:
  void leave(std::uint64_t blocks, std::uint64_t bytes, TimePoint now) CAIRN_REQUIRES(mutex_);

  Histogram* seconds_ = nullptr;
  mutable Mutex mutex_{LockRank::kHealth};
  LinkTotals totals_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t copies_under_way_ CAIRN_GUARDED_BY(mutex_) = 0;
  TimePoint busy_since_ CAIRN_GUARDED_BY(mutex_) = TimePoint::zero();
  TimePoint last_end_ CAIRN_GUARDED_BY(mutex_) = TimePoint::zero();
  double bytes_per_second_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
