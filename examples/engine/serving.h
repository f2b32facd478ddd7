// Serving a workload: schedule, compute on the ranks, sample, update, until every turn is answered.
//
// The turns of all conversations are served in rounds: the first turn of each, then the second of each, and so on. The
// output depends on the model and the workload alone: not on the ranks, the device's size, the order in which requests
// ran or where their keys and values came from. The digests of a report check that.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/engine_workload.h"
#include "examples/engine/ranks.h"
#include "examples/engine/scheduler.h"

namespace cairn::engine {

struct RunFigures {
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generated_tokens = 0;
  SchedulerFigures scheduler;
  TierFigures tiers;
  std::uint64_t token_digest = 0;  // of all generated tokens, in order of request
  std::uint64_t logit_digest = 0;  // of the bits of their logits
  double seconds = 0;
};

// `drop_device`: forget the engine's own cache after each round.
[[nodiscard]] Result<RunFigures> run_workload(std::span<const Conversation> workload, Scheduler& scheduler,
                                              Ranks& ranks, bool drop_device);

}  // namespace cairn::engine
