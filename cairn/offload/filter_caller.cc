#include "cairn/offload/filter_caller.h"

#include <algorithm>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

std::string in_microseconds(Duration time) {
  return str_cat(std::chrono::duration_cast<std::chrono::microseconds>(time).count(), " us");
}

}  // namespace

void FilterCaller::ask(const FilteredRun& run, std::span<bool> keep) {
  const TimePoint begin = clock_.now();
  {
    const MutexLock lock(mutex_);
    if (is_bypassed(begin)) {
      std::ranges::fill(keep, false);
      return;
    }
  }
  std::ranges::fill(keep, true);
  bool has_thrown = false;
  try {
    filter_(run, keep);
  } catch (...) {
    has_thrown = true;
    std::ranges::fill(keep, false);
  }
  const TimePoint end = clock_.now();
  std::string what = count(end - begin, has_thrown, end);
  if (!what.empty() && report_) {
    report_(std::move(what));
  }
}

std::string FilterCaller::count(Duration took, bool has_thrown, TimePoint now) {
  const MutexLock lock(mutex_);
  ++calls_;
  failures_ += has_thrown ? 1 : 0;
  const bool throws_first = has_thrown && !has_thrown_;
  has_thrown_ = has_thrown;
  if (took <= limit_) {
    overruns_in_a_row_ = 0;
    bypass_ = kFirstBypass;
    if (std::exchange(bypassed_until_, std::nullopt)) {
      return "the offload filter is called again: its latest call was in time";
    }
    return throws_first ? "the offload filter threw an exception; the blocks that it was asked about are not copied"
                        : "";
  }
  ++overruns_;
  ++overruns_in_a_row_;
  if (overruns_in_a_row_ >= kOverrunsInARow || bypassed_until_) {
    const Duration wait = std::exchange(bypass_, std::min(2 * bypass_, kLongestBypass));
    bypassed_until_ = deadline_after(now, wait);
    return str_cat("the offload filter took ", in_microseconds(took), ", and is bypassed for ",
                   std::chrono::duration_cast<std::chrono::seconds>(wait).count(), " s after ", overruns_in_a_row_,
                   " calls in a row that took longer than ", in_microseconds(limit_),
                   "; no block that it would be asked about is copied until then");
  }
  return overruns_in_a_row_ == 1 || throws_first
             ? str_cat("the offload filter took ", in_microseconds(took), "; its limit is ", in_microseconds(limit_))
             : "";
}

void FilterCaller::add_to(OffloadStatus& status) const {
  const TimePoint now = clock_.now();
  const MutexLock lock(mutex_);
  status.filter_calls = calls_;
  status.filter_overruns = overruns_;
  status.filter_failures = failures_;
  status.is_filter_bypassed = is_bypassed(now);
}

}  // namespace cairn
