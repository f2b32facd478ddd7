// `cairn trace`: writes traffic of a known kind as a trace, for `cairn hitrate` and others.
#pragma once

#include <iosfwd>
#include <string>

#include "cairn/base/result.h"
#include "cairn/trace/workload.h"

namespace cairn::cli {

struct TraceOptions {
  std::string kind = "chat";
  trace::WorkloadOptions workload = {};  // but for its kind
};

// Writes one line a request to `out`. Fails on options that make no sense, and where `out` takes no more.
[[nodiscard]] Status run_trace(const TraceOptions& options, std::ostream& out);

// All kinds, for messages: "chat, agents, ..."
[[nodiscard]] std::string workload_names();

}  // namespace cairn::cli
