#include "cairn/manager/reset_channel.h"

namespace cairn {

void ResetChannel::send(CacheLevel level) {
  const MutexLock lock(mutex_);
  kept_.push_back(level);
  ++sent_;
  if (kept_.size() > kKept) {
    kept_.pop_front();
  }
}

ResetReceiver ResetChannel::subscribe() {
  const MutexLock lock(mutex_);
  return {shared_from_this(), sent_};
}

std::optional<CacheLevel> ResetReceiver::try_next() {
  const MutexLock lock(channel_->mutex_);
  const std::uint64_t oldest = channel_->sent_ - channel_->kept_.size();
  if (next_ < oldest) {
    missed_ += oldest - next_;
    next_ = oldest;
  }
  if (next_ == channel_->sent_) {
    return std::nullopt;
  }
  return channel_->kept_[next_++ - oldest];
}

}  // namespace cairn
