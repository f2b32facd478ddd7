// generate(): makes a synthetic trace in Mooncake's JSONL from a seed. The same options give the same bytes everywhere.
//
//   kChat     chat users: shared system prompts, a few turns each, half a minute between turns
//   kAgents   agents that call tools: a long context, forty steps a few seconds apart, sometimes a chat user
//   kScan     chat, and sometimes a job that reads many long documents once
//   kFlood    chat, with two of three requests being prompts that are never repeated
//   kDiurnal  chat by day and agents by night, four times
//   kLoop     the same documents over and over: the worst case for a cache that is one block too small
//
// The turns of a chat user or an agent have one session ("s1", "s2" and so on); single requests have none.
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
  std::uint32_t loop_blocks = 1'001;  // distinct blocks of kLoop
  std::uint64_t seed = 1;
};

// Calls `emit` with each request, in the order of their timestamps.
void generate(const WorkloadOptions& options, const std::function<void(const TraceRow&)>& emit);

}  // namespace cairn::trace
