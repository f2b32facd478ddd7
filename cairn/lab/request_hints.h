// RequestHints: the hints that an engine could have given for each request of a trace when the request ended.
//
// The session of a request returns with the next request of its `session_id`. If the trace has no session ids, it
// returns with the next request that begins with all its blocks but the last, which need not be full. The hint is the
// time until then. A system prompt is the blocks with which at least sixteen sequences begin.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/lab/block_trace.h"

namespace cairn::lab {

struct RequestHints {
  std::uint32_t system_blocks = 0;          // its first so many blocks
  std::optional<Duration> returns_in = {};  // std::nullopt: the session ended
};

// One for each request.
[[nodiscard]] std::vector<RequestHints> honest_hints(const Trace& trace);

}  // namespace cairn::lab
