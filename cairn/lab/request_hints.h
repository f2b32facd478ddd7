// RequestHints: what an engine could have said of each request of a trace when it was done, had it been asked.
//
// Does:     a request's session comes back with the next request of its `session_id` or, where a trace has none, with the
//           next that begins with all its blocks but the last, which need not be full; the time until then is what is
//           said. A system prompt is what at least sixteen sequences begin with, and what comes before that.
// Threads:  pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/lab/block_trace.h"

namespace cairn::lab {

struct RequestHints {
  std::uint32_t system_blocks = 0;          // of its blocks, the first
  std::optional<Duration> returns_in = {};  // none: the session is over
};

// One for each request.
[[nodiscard]] std::vector<RequestHints> honest_hints(const Trace& trace);

}  // namespace cairn::lab
