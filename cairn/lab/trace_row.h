// TraceRow: one request of a trace in Mooncake's JSONL: a flat object with `hash_ids` (the blocks of its prompt, each id
// standing for its block and all before it), `input_length` in tokens and `timestamp` in milliseconds.
//
// Names:    `created_time` for `timestamp` and `input_tokens` for `input_length` are understood; what else is there is
//           passed over.
// Fails:    on a line that is not one JSON object, has no hash_ids, or numbers where they cannot be; says where and why.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"

namespace cairn::lab {

struct TraceRow {
  double timestamp_ms = 0;
  std::uint64_t input_tokens = 0;  // 0: not given
  std::vector<std::uint64_t> hash_ids;
};

// Reuses the memory of `row`; what it holds after a failure is of no use.
[[nodiscard]] Status parse_trace_row(std::string_view line, TraceRow& row);

}  // namespace cairn::lab
