// RequestSource: where a replay gets its requests from, one after the other, so that there may be any number of them.
//
// Owner:    outlives the replay that pulls from it.
// Threads:  called by the thread that runs the replay.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/sim/prompt.h"

namespace cairn::sim {

struct ReplayRequest {
  std::uint64_t line = 0;  // where it stands in its source: how messages name it
  TimePoint arrival{0};    // of the first one, any; of the others, relative to that
  std::vector<TokenRun> prompt = {};
  std::uint64_t output_tokens = 0;
  // Requests with one number other than 0 follow each other: a turn comes `delay` after the one before it was answered,
  // or as long after as their arrivals say.
  std::uint64_t session = 0;
  std::optional<Duration> delay = {};
};

class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // Writes the next one over `request`, whose memory may be used again; false at the end, and from then on.
  [[nodiscard]] virtual bool next(ReplayRequest& request) = 0;
};

}  // namespace cairn::sim
