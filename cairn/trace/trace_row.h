// TraceRow: one request of a trace in Mooncake's JSONL: a flat object with `hash_ids` (the blocks of its prompt, each id
// standing for its block and all before it), `input_length` and `output_length` in tokens, `timestamp` in milliseconds.
//
// Sessions: rows with one `session_id` follow each other: a turn starts `delay` milliseconds after the one before it was
//           answered, or as long after as their timestamps say.
// Names:    `created_time` for `timestamp`, `input_tokens` for `input_length`, `output_tokens` for `output_length` and
//           `delay_ms` for `delay` are understood; what else is there is passed over.
// Fails:    on a line that is not one JSON object, has no hash_ids, or numbers where they cannot be; says where and why.
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
  std::string session = {};         // its text as it stands in the row; empty: of no session
  std::optional<double> delay_ms = {};
  std::vector<std::uint64_t> hash_ids = {};
};

// Reuses the memory of `row`; what it holds after a failure is of no use.
[[nodiscard]] Status parse_trace_row(std::string_view line, TraceRow& row);

}  // namespace cairn::trace
