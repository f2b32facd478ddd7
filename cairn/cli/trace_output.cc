#include "cairn/cli/trace_output.h"

#include <cstdint>
#include <optional>
#include <ostream>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"

namespace cairn::cli {

std::string workload_names() {
  std::string names;
  for (const trace::WorkloadKind kind : trace::kAllWorkloads) {
    names += (names.empty() ? "" : ", ") + std::string(to_string(kind));
  }
  return names;
}

std::string trace_line(const trace::TraceRow& row) {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.field("timestamp", static_cast<std::uint64_t>(row.timestamp_ms));
  json.field("input_length", row.input_tokens);
  json.field("output_length", row.output_tokens);
  if (!row.session.empty()) {
    json.field("session_id", row.session);
  }
  json.begin_array("hash_ids");
  for (const auto id : row.hash_ids) {
    json.value(id);
  }
  json.end_array();
  json.end_object();
  return line;
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
  trace::generate(workload, [&out](const trace::TraceRow& row) { out << trace_line(row) << '\n'; });
  if (!out.flush()) {
    return fail(ErrorCode::kExhausted, "cannot write the trace");
  }
  return {};
}

}  // namespace cairn::cli
