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

std::string in_seconds(Duration time) {
  return str_cat(std::chrono::duration_cast<std::chrono::seconds>(time).count(), " s");
}

}  // namespace

FilterCaller::FilterCaller(Options options, const Clock& clock) : options_(std::move(options)), clock_(clock) {
  if (options_.own_thread) {
    thread_.emplace(options_.filter, clock);
  }
}

void FilterCaller::ask(const FilteredRun& run, std::span<bool> keep) {
  if (is_bypassed(clock_.now())) {
    std::ranges::fill(keep, false);
    return;
  }
  const FilterThread::Outcome outcome = call(run, keep);
  if (!outcome.has_returned || outcome.has_thrown) {
    std::ranges::fill(keep, false);
  }
  std::string what = count(outcome, clock_.now());
  if (!what.empty() && options_.report) {
    options_.report(std::move(what));
  }
}

FilterThread::Outcome FilterCaller::call(const FilteredRun& run, std::span<bool> keep) {
  if (thread_) {
    return thread_->call(run, keep, limited(options_.limit) + kHandOff);
  }
  const TimePoint begin = clock_.now();
  FilterThread::Outcome outcome{.has_returned = true};
  std::ranges::fill(keep, true);
  try {
    options_.filter(run, keep);
  } catch (...) {
    outcome.has_thrown = true;
  }
  outcome.took = clock_.now() - begin;
  return outcome;
}

bool FilterCaller::is_bypassed(TimePoint now) const {
  if (thread_ && thread_->is_stuck()) {
    return true;
  }
  const MutexLock lock(mutex_);
  return bypassed_until_ && now < *bypassed_until_;
}

Duration FilterCaller::bypass(TimePoint now) {
  const Duration wait = std::exchange(bypass_, std::min(2 * bypass_, kLongestBypass));
  bypassed_until_ = deadline_after(now, wait);
  return wait;
}

std::string FilterCaller::count(const FilterThread::Outcome& outcome, TimePoint now) {
  const MutexLock lock(mutex_);
  ++calls_;
  failures_ += outcome.has_thrown ? 1 : 0;
  const bool throws_first = outcome.has_thrown && !has_thrown_;
  has_thrown_ = outcome.has_thrown;
  if (outcome.has_returned && outcome.took <= options_.limit) {
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
  if (!outcome.has_returned) {
    return str_cat("the offload filter has not returned, and its limit is ", in_microseconds(options_.limit),
                   "; it is bypassed until it returns, and for ", in_seconds(bypass(now)),
                   " at least; no block that it would be asked about is copied until then");
  }
  if (overruns_in_a_row_ >= kOverrunsInARow || bypassed_until_) {
    return str_cat("the offload filter took ", in_microseconds(outcome.took), ", and is bypassed for ",
                   in_seconds(bypass(now)), " after ", overruns_in_a_row_, " calls in a row that took longer than ",
                   in_microseconds(options_.limit), "; no block that it would be asked about is copied until then");
  }
  return overruns_in_a_row_ == 1 || throws_first ? str_cat("the offload filter took ", in_microseconds(outcome.took),
                                                           "; its limit is ", in_microseconds(options_.limit))
                                                 : "";
}

void FilterCaller::add_to(OffloadStatus& status) const {
  status.is_filter_bypassed = is_bypassed(clock_.now());
  const MutexLock lock(mutex_);
  status.filter_calls = calls_;
  status.filter_overruns = overruns_;
  status.filter_failures = failures_;
}

}  // namespace cairn
