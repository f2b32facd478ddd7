// FilterCaller: calls a user's OffloadFilter and keeps it from doing harm. The answer is "no" for all blocks of a call that
// throws. A call that takes longer than the limit is counted and reported; its answer holds if it comes within kHandOff beyond
// the limit. A call that has not returned by then is given up: the answer is "no". After kOverrunsInARow calls over the limit,
// or one that was given up, the filter is bypassed for a while, and at least until it has returned: it is not called, and the
// answer is "no", as the filter may be there to keep blocks from being stored. Then it is tried again, after a wait that
// doubles each time.
//
// Thread safety: any thread. Holds no lock while the filter or `report` runs.
// Ownership: an Offloader. The clock outlives it. If a call does not return, see FilterThread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/offload/filter_thread.h"
#include "cairn/offload/offload_request.h"

namespace cairn {

class FilterCaller {
 public:
  static constexpr std::uint32_t kOverrunsInARow = 8;
  static constexpr Duration kFirstBypass = std::chrono::seconds(1);
  static constexpr Duration kLongestBypass = std::chrono::minutes(1);
  // On a busy machine, the time until the filter's thread runs and the caller runs again.
  static constexpr Duration kHandOff = std::chrono::milliseconds(20);

  struct Options {
    OffloadFilter filter = {};
    Duration limit = std::chrono::milliseconds(1);
    // Says what an operator should know of: the first overrun and the first exception in a row, and when the filter is bypassed
    // and called again. Called in ask(). May be empty.
    std::function<void(std::string)> report = {};
    // Off: the caller's thread calls the filter, and waits for it however long that takes. For virtual time.
    bool own_thread = true;
  };
  FilterCaller(Options options, const Clock& clock);

  // Asks the filter about the run. Requires: `keep` has one element for each block.
  void ask(const FilteredRun& run, std::span<bool> keep) CAIRN_EXCLUDES(mutex_);
  // Adds its figures to the status.
  void add_to(OffloadStatus& status) const CAIRN_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool is_bypassed(TimePoint now) const CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] FilterThread::Outcome call(const FilteredRun& run, std::span<bool> keep);
  // Counts a call; returns what is to be reported.
  [[nodiscard]] std::string count(const FilterThread::Outcome& outcome, TimePoint now) CAIRN_EXCLUDES(mutex_);
  // Returns for how long.
  Duration bypass(TimePoint now) CAIRN_REQUIRES(mutex_);

  const Options options_;
  const Clock& clock_;
  std::optional<FilterThread> thread_;  // unless Options::own_thread is off

  mutable Mutex mutex_{LockRank::kHealth};
  std::uint64_t calls_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t overruns_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint64_t failures_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::uint32_t overruns_in_a_row_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool has_thrown_ CAIRN_GUARDED_BY(mutex_) = false;  // in the latest call
  // std::nullopt unless the filter was bypassed and no call has been in time since.
  std::optional<TimePoint> bypassed_until_ CAIRN_GUARDED_BY(mutex_);
  Duration bypass_ CAIRN_GUARDED_BY(mutex_) = kFirstBypass;
};

}  // namespace cairn
