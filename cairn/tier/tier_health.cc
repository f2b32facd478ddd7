#include "cairn/tier/tier_health.h"

#include <algorithm>

#include "cairn/base/deadline.h"

namespace cairn {

namespace {

constexpr std::uint64_t kBlocksOfLate = 128;
constexpr std::uint64_t kWrongShare = 4;      // one wrong block in this many takes it out of use
constexpr std::uint64_t kLeastWrong = 16;     // and no fewer
constexpr std::uint32_t kLeastBadCopies = 2;  // in a row, with nothing but wrong bytes

}  // namespace

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

TierHealth::Change TierHealth::count_success() {
  in_a_row_ = 0;
  trial_ = false;
  if (report_.is_up) {
    return Change::kNone;
  }
  report_.is_up = true;
  report_.out_since.reset();
  report_.next_trial.reset();
  wait_ = Duration::zero();
  read_ = 0;
  wrong_ = 0;
  return Change::kBack;
}

TierHealth::Change TierHealth::count_failure(const std::string& reason, TimePoint now, bool take_out) {
  ++report_.failures;
  report_.reason = reason;
  ++in_a_row_;
  if (report_.is_up && !take_out) {
    return Change::kNone;
  }
  // Transfers that were in flight when the direction was taken out of use may fail later: only the trial counts.
  const bool was_up = report_.is_up;
  if (was_up || trial_) {
    wait_ =
        std::min(limited(options_.longest_wait), wait_ == Duration::zero() ? limited(options_.first_wait) : 2 * wait_);
    report_.next_trial = deadline_after(now, wait_);
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

TierHealth::Change TierHealth::succeeded() {
  const MutexLock lock(mutex_);
  return count_success();
}

TierHealth::Change TierHealth::failed(const std::string& reason, TimePoint now) {
  const MutexLock lock(mutex_);
  return count_failure(reason, now, in_a_row_ + 1 >= options_.failures);
}

TierHealth::Change TierHealth::verified(std::uint64_t right, std::uint64_t wrong, const std::string& reason,
                                        TimePoint now) {
  const MutexLock lock(mutex_);
  read_ += right + wrong;
  wrong_ += wrong;
  const bool is_garbage = wrong_ >= kLeastWrong && wrong_ * kWrongShare >= read_;
  while (read_ > kBlocksOfLate) {
    read_ /= 2;
    wrong_ /= 2;
  }
  const bool is_bad = wrong * kWrongShare >= right + wrong;
  if (wrong == 0 || (!report_.is_up && !is_bad)) {
    return count_success();
  }
  if (report_.is_up && right > 0 && !is_garbage) {
    in_a_row_ = 0;
    return Change::kNone;
  }
  return count_failure(reason, now, is_garbage || in_a_row_ + 1 >= std::max(options_.failures, kLeastBadCopies));
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
