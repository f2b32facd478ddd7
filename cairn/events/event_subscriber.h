// EventSubscriber: a cursor over one log. poll() returns each event once, in order.
//
// If the log has dropped events that the subscriber needs, poll() returns Lagged until the subscriber resumes: take a
// snapshot (snapshot.h), rebuild from it, and call resume_at(snapshot.sequence + 1). A subscriber that joins late starts in
// that state.
//
// Thread safety: one thread at a time.
// Ownership: the log outlives it. A log can have any number of subscribers at no cost.
// Errors: resume_at() and resuming() refuse a number that the log has not given out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/events/event.h"
#include "cairn/events/event_log.h"

namespace cairn {

class EventSubscriber {
 public:
  static constexpr std::size_t kDefaultBatch = 1024;

  // Starts without knowledge: poll() returns Lagged until resume_at().
  [[nodiscard]] static EventSubscriber joining(const EventLog& log) { return EventSubscriber(log, 1, true); }
  // Continues with event `next`; 1 follows a log from its start.
  [[nodiscard]] static Result<EventSubscriber> resuming(const EventLog& log, std::uint64_t next);

  // The next events, up to `max_blocks` blocks in all or one larger event; empty if there is nothing new. Or Lagged.
  [[nodiscard]] EventBatch poll(std::size_t max_blocks = kDefaultBatch);
  // Continues with event `next`, forward or back. If the log has dropped it already, poll() returns Lagged.
  [[nodiscard]] Status resume_at(std::uint64_t next);

  // The number of the next event, or of the first lost one.
  [[nodiscard]] std::uint64_t next_sequence() const { return next_; }
  [[nodiscard]] bool needs_snapshot() const { return needs_snapshot_; }

 private:
  EventSubscriber(const EventLog& log, std::uint64_t next, bool needs_snapshot)
      : log_(&log), next_(next), needs_snapshot_(needs_snapshot) {}

  const EventLog* log_;
  std::uint64_t next_;
  bool needs_snapshot_;
};

}  // namespace cairn
