// FilterCaller: calls a user's OffloadFilter and keeps it from doing harm. The answer is "no" for all blocks of a call that
// throws. A call that takes longer than the limit is counted and reported; its answer holds. After kOverrunsInARow such
// calls the filter is bypassed for a while: it is not called, and the answer is "no", as the filter may be there to keep
// blocks from being stored. Then it is tried again, after a wait that doubles each time.
//
// Thread safety: any thread. Holds no lock while the filter or `report` runs.
// Ownership: an Offloader. The clock outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/offload/offload_request.h"

namespace cairn {

class FilterCaller {
 public:
  static constexpr std::uint32_t kOverrunsInARow = 8;
  static constexpr Duration kFirstBypass = std::chrono::seconds(1);
  static constexpr Duration kLongestBypass = std::chrono::minutes(1);

  // `report` says what an operator should know of: the first overrun and the first exception in a row, and when the filter
  // is bypassed and called again. May be empty.
  FilterCaller(OffloadFilter filter, Duration limit, std::function<void(std::string)> report, const Clock& clock)
      : filter_(std::move(filter)), limit_(limit), report_(std::move(report)), clock_(clock) {}

  // Asks the filter about the run. Requires: `keep` has one element for each block.
  void ask(const FilteredRun& run, std::span<bool> keep) CAIRN_EXCLUDES(mutex_);
  // Adds its figures to the status.
  void add_to(OffloadStatus& status) const CAIRN_EXCLUDES(mutex_);

 private:
  [[nodiscard]] bool is_bypassed(TimePoint now) const CAIRN_REQUIRES(mutex_) {
    return bypassed_until_ && now < *bypassed_until_;
  }
  // Counts a call; returns what is to be reported.
  [[nodiscard]] std::string count(Duration took, bool has_thrown, TimePoint now) CAIRN_EXCLUDES(mutex_);

  const OffloadFilter filter_;
  const Duration limit_;
  const std::function<void(std::string)> report_;
  const Clock& clock_;

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
