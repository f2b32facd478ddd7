#include "cairn/connector/operation_inbox.h"

#include <algorithm>

namespace cairn {

void OperationInbox::given_out(std::uint64_t iteration, std::span<const OperationPtr> operations) {
  const MutexLock lock(mutex_);
  if (under_way_.capacity() < under_way_.size() + operations.size()) {
    under_way_.reserve(std::max(under_way_.size() + operations.size(), 2 * under_way_.capacity()));
  }
  iteration_ = iteration;
  for (const OperationPtr& operation : operations) {
    operation->place = under_way_.size();
    under_way_.push_back(operation);
  }
}

void OperationInbox::post(OperationPtr operation, std::uint32_t arrived) {
  operation->is_over = true;
  {
    const MutexLock lock(mutex_);
    if (is_closed_) {
      return;
    }
    if (operation->place) {
      under_way_.back()->place = operation->place;
      std::swap(under_way_[*operation->place], under_way_.back());
      under_way_.pop_back();
      operation->place.reset();
    }
    if (operation->is_load) {
      untold_.loads.push_back({operation->id, arrived});
    } else {
      untold_.saves.push_back(operation->id);
    }
    over_.push_back({std::move(operation), arrived});
    if (!begin_telling()) {
      return;
    }
  }
  tell();
}

void OperationInbox::tell_under_way() {
  {
    const MutexLock lock(mutex_);
    if (is_closed_ || !iteration_) {
      return;
    }
    is_under_way_untold_ = true;
    if (!begin_telling()) {
      return;
    }
  }
  tell();
}

void OperationInbox::tell() {
  for (;;) {
    OperationNotice notice;
    {
      const MutexLock lock(mutex_);
      if (is_closed_ || (untold_.loads.empty() && untold_.saves.empty() && !is_under_way_untold_)) {
        is_telling_ = false;
        told_.notify_all();
        return;
      }
      notice = take_untold();
    }
    tell_(notice);
  }
}

OperationNotice OperationInbox::take_untold() {
  OperationNotice notice = std::exchange(untold_, {});
  if (std::exchange(is_under_way_untold_, false)) {
    notice.over_before = *iteration_ + 1;
    notice.under_way.reserve(under_way_.size());
    for (const OperationPtr& operation : under_way_) {
      notice.under_way.push_back(operation->id);
    }
  }
  return notice;
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
