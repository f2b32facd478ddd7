#include "cairn/connector/operation_inbox.h"

namespace cairn {

void OperationInbox::post(OperationPtr operation, std::uint32_t arrived) {
  operation->is_over = true;
  {
    const MutexLock lock(mutex_);
    if (is_closed_) {
      return;
    }
    if (operation->is_load) {
      untold_.loads.push_back({operation->id, arrived});
    } else {
      untold_.saves.push_back(operation->id);
    }
    over_.push_back({std::move(operation), arrived});
    if (is_telling_) {
      return;
    }
    is_telling_ = true;
  }
  for (;;) {
    OperationNotice notice;
    {
      const MutexLock lock(mutex_);
      if (is_closed_ || (untold_.loads.empty() && untold_.saves.empty())) {
        is_telling_ = false;
        told_.notify_all();
        return;
      }
      notice = std::exchange(untold_, {});
    }
    tell_(notice);
  }
}

void OperationInbox::take(std::vector<Over>& out) {
  out.clear();
  const MutexLock lock(mutex_);
  std::swap(out, over_);
}

bool OperationInbox::empty() const {
  const MutexLock lock(mutex_);
  return over_.empty();
}

void OperationInbox::close() {
  mutex_.lock();
  is_closed_ = true;
  while (is_telling_) {
    told_.wait(mutex_);
  }
  mutex_.unlock();
}

}  // namespace cairn
