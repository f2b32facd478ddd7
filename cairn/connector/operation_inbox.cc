#include "cairn/connector/operation_inbox.h"

#include <algorithm>

namespace cairn {

OperationPtr OperationInbox::hold(const std::shared_ptr<OperationInbox>& inbox, OperationPtr operation) {
  Operation* const held = operation.get();
  return {held, [inbox, operation = std::move(operation)](Operation*) mutable { inbox->post(std::move(operation)); }};
}

void OperationInbox::add(const IterationMetadata& iteration) {
  const MutexLock lock(mutex_);
  const std::size_t count = in_flight_.size() + iteration.loads.size() + iteration.saves.size();
  if (in_flight_.capacity() < count) {
    in_flight_.reserve(std::max(count, 2 * in_flight_.capacity()));
  }
  iteration_ = iteration.iteration;
  for (const auto* list : {&iteration.saves, &iteration.loads}) {
    for (const OperationPtr& operation : *list) {
      operation->place = in_flight_.size();
      in_flight_.push_back(operation);
    }
  }
}

void OperationInbox::post(OperationPtr operation) {
  {
    const MutexLock lock(mutex_);
    operation->is_over = true;
    if (is_closed_) {
      return;
    }
    if (operation->place) {
      in_flight_.back()->place = operation->place;
      std::swap(in_flight_[*operation->place], in_flight_.back());
      in_flight_.pop_back();
      operation->place.reset();
    }
    if (operation->is_load) {
      unreported_.loads.push_back({operation->id, operation->loaded_blocks});
    } else {
      unreported_.saves.push_back(operation->id);
    }
    over_.push_back(std::move(operation));
    if (!begin_reporting()) {
      return;
    }
  }
  report();
}

void OperationInbox::report_in_flight() {
  {
    const MutexLock lock(mutex_);
    if (is_closed_ || !iteration_) {
      return;
    }
    is_in_flight_unreported_ = true;
    if (!begin_reporting()) {
      return;
    }
  }
  report();
}

void OperationInbox::report() {
  for (;;) {
    OperationOutcomes outcomes;
    {
      const MutexLock lock(mutex_);
      if (is_closed_ || (unreported_.loads.empty() && unreported_.saves.empty() && !is_in_flight_unreported_)) {
        is_reporting_ = false;
        reported_.notify_all();
        return;
      }
      outcomes = take_unreported();
    }
    report_(outcomes);
  }
}

OperationOutcomes OperationInbox::take_unreported() {
  OperationOutcomes outcomes = std::exchange(unreported_, {});
  if (std::exchange(is_in_flight_unreported_, false)) {
    outcomes.finished_before = *iteration_ + 1;
    outcomes.in_flight.reserve(in_flight_.size());
    for (const OperationPtr& operation : in_flight_) {
      outcomes.in_flight.push_back(operation->id);
    }
  }
  return outcomes;
}

void OperationInbox::take(std::vector<OperationPtr>& out) {
  out.clear();
  const MutexLock lock(mutex_);
  std::swap(out, over_);
}

bool OperationInbox::empty() const {
  const MutexLock lock(mutex_);
  return over_.empty();
}

bool OperationInbox::is_over(const Operation& operation) const {
  const MutexLock lock(mutex_);
  return operation.is_over;
}

void OperationInbox::close() {
  mutex_.lock();
  is_closed_ = true;
  while (is_reporting_) {
    reported_.wait(mutex_);
  }
  mutex_.unlock();
}

}  // namespace cairn
