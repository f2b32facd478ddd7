// `cairn events`: follows a stream of KV cache events and prints it.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "cairn/base/result.h"
#include "cairn/events/event_receiver.h"

namespace cairn::cli {

struct EventsOptions {
  EventReceiver::Options stream = {};
  bool json = false;
  std::uint64_t count = 0;  // ends after so many batches; 0: never
};

// Prints what comes until `stop` is set or `count` batches have come.
[[nodiscard]] Status run_events(const EventsOptions& options, const std::atomic<bool>& stop, std::ostream& out);
// One batch or report for people, or as lines of JSON.
void print_events(const ReceivedEvents& received, bool json, std::ostream& out);

}  // namespace cairn::cli
