// `cairn trace`: generates traces for `cairn hitrate` and `cairn replay`.
#pragma once

#include <iosfwd>
#include <string>

#include "cairn/base/result.h"
#include "cairn/trace/trace_row.h"
#include "cairn/trace/workload.h"

namespace cairn::cli {

struct TraceOptions {
  std::string kind = "chat";
  trace::WorkloadOptions workload = {};  // its kind is ignored
};

// The row as JSON, in the form that parse_trace_row() reads. The session is any text: it is escaped here.
[[nodiscard]] std::string trace_line(const trace::TraceRow& row);

// Writes one line for each request to `out`.
[[nodiscard]] Status run_trace(const TraceOptions& options, std::ostream& out);

// "chat, agents, ...", for help and messages.
[[nodiscard]] std::string workload_names();

}  // namespace cairn::cli
