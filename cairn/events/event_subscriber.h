// EventSubscriber: a cursor over one log.
//
// Does:     poll() gives each event once, in order. A subscriber that has fallen so far behind that the log has dropped
//           what it needs is told so, again and again, until it resumes: take a snapshot (snapshot.h), rebuild from it,
//           and resume_at(snapshot.sequence + 1). One that joins late starts in that state.
// Owner:    whoever made it; its log outlives it. Costs the log nothing: any number of them may follow one.
// Threads:  belongs to one thread at a time.
// Fails:    resuming at a number that the log has not given out.
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

  // Knows nothing yet: poll() asks for a snapshot first.
  [[nodiscard]] static EventSubscriber joining(const EventLog& log) { return EventSubscriber(log, 1, true); }
  // Has seen everything before event `next`; 1 to follow a log from its start.
  [[nodiscard]] static Result<EventSubscriber> resuming(const EventLog& log, std::uint64_t next);

  // The next events, of `max_blocks` blocks in all or a single larger one; none if there is nothing new. Or Lagged.
  [[nodiscard]] EventBatch poll(std::size_t max_blocks = kDefaultBatch);
  // Goes on with event `next`, forward or back. Fails, and leaves the cursor where it was, on one the log has not given
  // out. That the log has dropped it already is for poll() to say.
  [[nodiscard]] Status resume_at(std::uint64_t next);

  // The event that comes next, or the first one missed.
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
