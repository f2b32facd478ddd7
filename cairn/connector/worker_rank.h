// WorkerRank: what the steps of a worker ask of its rank. RankWorker in production (worker_connector.cc).
//
// Does:     the calls, as ranks/rank_worker.h says them.
// Threads:  the engine's; what is said to wait waits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/ranks/leader_id.h"
#include "cairn/ranks/rank_worker.h"
#include "cairn/transfer/step_event.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

class WorkerRank {
 public:
  WorkerRank() = default;
  WorkerRank(const WorkerRank&) = delete;
  WorkerRank& operator=(const WorkerRank&) = delete;
  virtual ~WorkerRank() = default;

  [[nodiscard]] virtual bool follow(const LeaderId& leader, TimePoint deadline) = 0;
  virtual void reached(StepMark mark, StepEventPtr after) = 0;
  virtual void expect(std::span<const BlockId> blocks) = 0;
  [[nodiscard]] virtual Status wait_for_layer(std::uint32_t layer, TimePoint deadline) = 0;
  [[nodiscard]] virtual std::vector<BlockId> lacking(std::uint32_t layer) const = 0;
  virtual void pass_over(std::span<const BlockId> blocks) = 0;
  [[nodiscard]] virtual bool fence(std::span<const BlockId> blocks, StepMark overwritten_in, TimePoint deadline) = 0;
  [[nodiscard]] virtual RankWorker::State state() const = 0;
};

}  // namespace cairn
