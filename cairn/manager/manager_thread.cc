#include "cairn/manager/manager_thread.h"

#include "cairn/base/deadline.h"
#include "cairn/base/own_thread.h"

namespace cairn {

namespace {

// How long drain() waits before it looks again.
constexpr Duration kDrainStep = std::chrono::milliseconds(1);

}  // namespace

void ManagerThread::start(ManagerTiers& tiers) {
  thread_ = start_own_thread("cairn-manager", [this, &tiers] { run(tiers); });
}

void ManagerThread::stop() {
  if (thread_.joinable()) {
    {
      const MutexLock lock(mutex_);
      ending_ = true;
      woken_up_.notify_one();
    }
    thread_.join();
  }
}

void ManagerThread::wake() {
  if (woken_.exchange(true)) {
    return;
  }
  const MutexLock lock(mutex_);
  woken_up_.notify_one();
}

void ManagerThread::run(ManagerTiers& tiers) {
  while (true) {
    const std::optional<TimePoint> next = tiers.next_time();
    {
      MutexLock lock(mutex_);
      const auto due = [this]() CAIRN_REQUIRES(mutex_) { return ending_ || woken_; };
      is_asleep_ = true;
      ++sleeps_;
      went_to_sleep_.notify_all();
      if (!next) {
        woken_up_.wait(mutex_, due);
      } else {
        woken_up_.wait_for(mutex_, time_until(*next, clock_.now()), due);
      }
      if (ending_) {
        return;
      }
      is_asleep_ = false;
    }
    woken_ = false;
    while (tiers.pump()) {
    }
  }
}

std::optional<ManagerThread::Rest> ManagerThread::rest(const ManagerTiers& tiers) {
  const std::optional<std::uint64_t> copies = tiers.settled_copies();
  const MutexLock lock(mutex_);
  if (!copies || (thread_.joinable() && (!is_asleep_ || woken_))) {
    return std::nullopt;
  }
  return Rest{.sleeps = sleeps_, .copies = *copies};
}

Status ManagerThread::drain(ManagerTiers& tiers, Duration longest) {
  const auto is_idle = [&] {
    const std::optional<Rest> before = rest(tiers);
    return before && tiers.is_idle() && rest(tiers) == before;
  };
  const TimePoint deadline = deadline_after(clock_.now(), longest);
  while (!is_idle()) {
    if (clock_.now() >= deadline) {
      return fail(ErrorCode::kExpired, "copies are still waiting or in flight; status() says which");
    }
    if (!thread_.joinable()) {
      if (!tiers.pump()) {
        return fail(ErrorCode::kUnavailable, "nothing more can be done before the clock moves");
      }
      continue;
    }
    wake();
    MutexLock lock(mutex_);
    went_to_sleep_.wait_for(mutex_, kDrainStep);
  }
  return {};
}

}  // namespace cairn
