#include "cairn/offload/filter_thread.h"

#include <algorithm>
#include <condition_variable>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/deadline.h"
#include "cairn/base/mutex.h"
#include "cairn/base/own_thread.h"

namespace cairn {

struct FilterThread::Shared {
  enum class State : std::uint8_t { kIdle, kAsked, kRunning, kAnswered };

  Shared(OffloadFilter given, const Clock& given_clock) : filter(std::move(given)), clock(given_clock) {}

  const OffloadFilter filter;
  const Clock& clock;  // may be gone unless is_awaited

  Mutex mutex{LockRank::kHealth};
  std::condition_variable_any asked;     // the thread waits for it
  std::condition_variable_any returned;  // callers do
  State state CAIRN_GUARDED_BY(mutex) = State::kIdle;
  bool is_awaited CAIRN_GUARDED_BY(mutex) = false;
  bool is_ending CAIRN_GUARDED_BY(mutex) = false;
  Outcome outcome CAIRN_GUARDED_BY(mutex);
  // Of the thread while the state is kRunning, else guarded by the mutex.
  FilteredRun run = {};  // refers to the two below
  std::string request = {};
  std::vector<FilteredBlock> blocks = {};
  std::unique_ptr<bool[]> keep = {};
};

FilterThread::FilterThread(OffloadFilter filter, const Clock& clock)
    : shared_(std::make_shared<Shared>(std::move(filter), clock)),
      thread_(start_own_thread("cairn-filter", [shared = shared_] { serve(*shared); })) {}

FilterThread::~FilterThread() {
  Shared& shared = *shared_;
  bool is_over = false;
  {
    const MutexLock lock(shared.mutex);
    shared.is_ending = true;
    shared.asked.notify_one();
    is_over = shared.returned.wait_for(shared.mutex, kLongestEnd, [&shared]() CAIRN_REQUIRES(shared.mutex) {
      return shared.state != Shared::State::kRunning;
    });
  }
  is_over ? thread_.join() : thread_.detach();
}

bool FilterThread::is_stuck() const {
  const MutexLock lock(shared_->mutex);
  return shared_->state == Shared::State::kRunning && !shared_->is_awaited;
}

FilterThread::Outcome FilterThread::call(const FilteredRun& run, std::span<bool> keep, Duration longest) {
  using enum Shared::State;
  Shared& shared = *shared_;
  const TimePoint deadline = deadline_after(steady_clock().now(), longest);
  const auto wait_for = [&](auto is_reached) CAIRN_REQUIRES(shared.mutex) {
    return shared.returned.wait_for(shared.mutex, time_until(deadline, steady_clock().now()), is_reached);
  };
  const MutexLock lock(shared.mutex);
  if (!wait_for([&shared]() CAIRN_REQUIRES(shared.mutex) { return shared.state == kIdle; })) {
    return {};
  }
  shared.keep = std::make_unique<bool[]>(keep.size());
  std::fill_n(shared.keep.get(), keep.size(), true);
  shared.request = run.request;
  shared.blocks.assign(run.blocks.begin(), run.blocks.end());
  shared.run = run;
  shared.run.request = shared.request;
  shared.run.blocks = shared.blocks;
  shared.outcome = {};
  shared.is_awaited = true;
  shared.state = kAsked;
  shared.asked.notify_one();
  const bool has_returned = wait_for([&shared]() CAIRN_REQUIRES(shared.mutex) { return shared.state == kAnswered; });
  shared.is_awaited = false;
  if (has_returned) {
    std::copy_n(shared.keep.get(), keep.size(), keep.begin());
  }
  if (shared.state != kRunning) {  // answered, or the thread has not got to it
    shared.state = kIdle;
    shared.returned.notify_all();
  }
  return shared.outcome;
}

void FilterThread::serve(Shared& shared) {
  using enum Shared::State;
  for (;;) {
    TimePoint begin;
    {
      const MutexLock lock(shared.mutex);
      shared.asked.wait(shared.mutex, [&shared]() CAIRN_REQUIRES(shared.mutex) {
        return shared.is_ending || shared.state == kAsked;
      });
      if (shared.is_ending) {
        return;
      }
      shared.state = kRunning;
      begin = shared.clock.now();
    }
    bool has_thrown = false;
    try {
      shared.filter(shared.run, {shared.keep.get(), shared.blocks.size()});
    } catch (...) {
      has_thrown = true;
    }
    const MutexLock lock(shared.mutex);
    shared.state = kIdle;
    if (shared.is_awaited) {
      shared.outcome = {.has_returned = true, .has_thrown = has_thrown, .took = shared.clock.now() - begin};
      shared.state = kAnswered;
    }
    shared.returned.notify_all();
  }
}

}  // namespace cairn
