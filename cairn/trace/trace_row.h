// TraceRow: one request of a trace in Mooncake's JSONL: a flat object with `hash_ids` (the blocks of the prompt; an id
// stands for its block and all blocks before it), `input_length` and `output_length` in tokens, `timestamp` in
// milliseconds.
//
// Rows with the same `session_id` are turns of one session: a turn starts `delay` milliseconds after the previous turn was
// answered or, without a delay, as long after it as their timestamps say.
//
// `ending` says how the request ended: a name of evict/request_ending.h. `finish_reason` and `stop_reason` are read as
// `ending`.
//
// `created_time` is read as `timestamp`, `input_tokens` as `input_length`, `output_tokens` as `output_length`, `delay_ms` as
// `delay`. Other fields are ignored.
//
// Errors: a line that is not one JSON object, has no hash_ids, or has an invalid number; the message says where and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"

namespace cairn::trace {

struct TraceRow {
  double timestamp_ms = 0;
  std::uint64_t input_tokens = 0;   // 0: not given
  std::uint64_t output_tokens = 0;  // 0: not given
  std::string session = {};         // as it is written in the row; empty: no session
  std::optional<double> delay_ms = {};
  std::string ending = {};  // as it is written in the row; empty: not given
  std::vector<std::uint64_t> hash_ids = {};
};

// Reuses the memory of `row`, whose contents are unspecified if the call fails.
[[nodiscard]] Status parse_trace_row(std::string_view line, TraceRow& row);

}  // namespace cairn::trace
