#include "cairn/events/event_subscriber.h"

#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

Result<EventSubscriber> EventSubscriber::resuming(const EventLog& log, std::uint64_t next) {
  EventSubscriber subscriber = joining(log);
  CAIRN_TRY(subscriber.resume_at(next));
  return subscriber;
}

EventBatch EventSubscriber::poll(std::size_t max_blocks) {
  if (needs_snapshot_) {
    return Lagged{.missed_from = next_, .oldest = log_->oldest_sequence()};
  }
  Result<EventBatch> batch = log_->read(next_, max_blocks);
  CAIRN_CHECK(batch.has_value(), "a subscriber's cursor is never ahead of its log");
  if (const auto* events = std::get_if<std::vector<Event>>(&*batch)) {
    next_ += events->size();
  } else {
    needs_snapshot_ = true;
  }
  return *std::move(batch);
}

Status EventSubscriber::resume_at(std::uint64_t next) {
  const std::uint64_t last = log_->last_sequence();
  if (next == 0 || next > last + 1) {
    return fail(ErrorCode::kOutOfRange, str_cat("cannot resume at event ", next, ": the log has numbered events 1 to ",
                                                last, "; it may be a new log, so take a snapshot and resume after it"));
  }
  next_ = next;
  needs_snapshot_ = false;
  return {};
}

}  // namespace cairn
