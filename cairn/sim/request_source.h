// RequestSource: yields the requests of a replay one by one, so that there may be any number of them.
//
// Thread safety: called on the thread that runs the replay.
// Ownership:  must outlive the replay.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/prompt.h"

namespace cairn::sim {

struct ReplayRequest {
  std::uint64_t line = 0;  // line in the source, for messages
  TimePoint arrival{0};    // counts relative to that of the first request
  std::vector<TokenRun> prompt = {};
  std::uint64_t output_tokens = 0;
  // Requests with the same number other than 0 are turns of one session. A turn arrives `delay` after the turn before
  // was answered; without a delay, the difference of their arrivals counts.
  std::uint64_t session = 0;
  std::optional<Duration> delay = {};
};

class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // Overwrites `request` with the next one and may reuse its memory. Returns false at the end, and from then on.
  [[nodiscard]] virtual bool next(ReplayRequest& request) = 0;
};

}  // namespace cairn::sim
