#include "cairn/cli/trace_output.h"

#include <cstdint>
#include <optional>
#include <ostream>

#include "cairn/base/str_cat.h"

namespace cairn::cli {

std::string workload_names() {
  std::string names;
  for (const trace::WorkloadKind kind : trace::kAllWorkloads) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(kind));
  }
  return names;
}

Status run_trace(const TraceOptions& options, std::ostream& out) {
  const std::optional<trace::WorkloadKind> kind = trace::parse_workload(options.kind);
  if (!kind) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown kind '", options.kind, "' (expected ", workload_names(), ")"));
  }
  trace::WorkloadOptions workload = options.workload;
  workload.kind = *kind;
  if (workload.requests == 0 || workload.block_size == 0 || workload.loop_blocks == 0) {
    return fail(ErrorCode::kInvalidArgument, "--requests, --block-size and --loop-blocks must be at least 1");
  }
  trace::generate(workload, [&out](const trace::TraceRow& row) {
    out << "{\"timestamp\": " << static_cast<std::uint64_t>(row.timestamp_ms)
        << ", \"input_length\": " << row.input_tokens << ", \"output_length\": " << row.output_tokens;
    if (!row.session.empty()) {
      out << ", \"session_id\": \"" << row.session << "\"";
    }
    out << ", \"hash_ids\": [";
    for (std::size_t i = 0; i < row.hash_ids.size(); ++i) {
      out << (i == 0 ? "" : ", ") << row.hash_ids[i];
    }
    out << "]}\n";
  });
  if (!out.flush()) {
    return fail(ErrorCode::kExhausted, "cannot write the trace");
  }
  return {};
}

}  // namespace cairn::cli
