#include "cairn/tier/tier_health.h"

#include <algorithm>

namespace cairn {

bool TierHealth::may_use(TimePoint now) {
  const MutexLock lock(mutex_);
  if (report_.is_up) {
    return true;
  }
  if (trial_ || now < *report_.next_trial) {
    return false;
  }
  trial_ = true;
  return true;
}

bool TierHealth::is_up() const {
  const MutexLock lock(mutex_);
  return report_.is_up;
}

bool TierHealth::may_be_tried(TimePoint now) const {
  const MutexLock lock(mutex_);
  return report_.is_up || *report_.next_trial <= now;
}

TierHealth::Change TierHealth::succeeded() {
  const MutexLock lock(mutex_);
  in_a_row_ = 0;
  trial_ = false;
  if (report_.is_up) {
    return Change::kNone;
  }
  report_.is_up = true;
  report_.out_since.reset();
  report_.next_trial.reset();
  wait_ = Duration::zero();
  return Change::kBack;
}

TierHealth::Change TierHealth::failed(const std::string& reason, TimePoint now) {
  const MutexLock lock(mutex_);
  ++report_.failures;
  report_.reason = reason;
  ++in_a_row_;
  if (report_.is_up && in_a_row_ < options_.failures) {
    return Change::kNone;
  }
  // What was under way when it was taken out fails late: only a trial says anything new.
  const bool was_up = report_.is_up;
  if (was_up || trial_) {
    wait_ = std::min(options_.longest_wait, wait_ == Duration::zero() ? options_.first_wait : 2 * wait_);
    report_.next_trial = now + wait_;
  }
  trial_ = false;
  if (!was_up) {
    return Change::kNone;
  }
  report_.is_up = false;
  report_.out_since = now;
  ++report_.times_out;
  return Change::kOut;
}

void TierHealth::not_tried() {
  const MutexLock lock(mutex_);
  trial_ = false;
}

TierHealth::Report TierHealth::report() const {
  const MutexLock lock(mutex_);
  return report_;
}

}  // namespace cairn
