// Workload: traffic of a known kind from a seed, as a trace in Mooncake's JSONL.
//
// Kinds:    kChat     people who talk: shared system prompts, some turns each, half a minute to think in between
//           kAgents   programs that call tools: a long context, forty steps a few seconds apart, now and then a person
//           kScan     chat, and now and then a job that reads many long documents once
//           kFlood    chat in a flood of prompts that never come back, two in three
//           kDiurnal  chat by day and agents by night, four times over
//           kLoop     one document after the other, and over again: the adversary of a cache that has one block less
// Sessions: the turns of a person or an agent have one session, "s1", "s2" and so on; what comes once has none.
// Threads:  pure; the same options give the same bytes everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "cairn/trace/trace_row.h"

namespace cairn::trace {

enum class WorkloadKind : std::uint8_t { kChat, kAgents, kScan, kFlood, kDiurnal, kLoop };
inline constexpr WorkloadKind kAllWorkloads[] = {WorkloadKind::kChat,  WorkloadKind::kAgents,  WorkloadKind::kScan,
                                                 WorkloadKind::kFlood, WorkloadKind::kDiurnal, WorkloadKind::kLoop};
// "chat", "agents", "scan", "flood", "diurnal", "loop"
[[nodiscard]] std::string_view to_string(WorkloadKind kind);
[[nodiscard]] std::optional<WorkloadKind> parse_workload(std::string_view name);

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kChat;
  std::uint32_t requests = 10'000;
  std::uint32_t block_size = 512;
  std::uint32_t loop_blocks = 1'001;  // of kLoop: distinct blocks
  std::uint64_t seed = 1;
};

// Calls `emit` with one request after the other, in the order of their times.
void generate(const WorkloadOptions& options, const std::function<void(const TraceRow&)>& emit);

}  // namespace cairn::trace
