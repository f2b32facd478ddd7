// SchedulerTiers: the scheduler's half of using Cairn: one call for each event of a request, in the order of
// SchedulerConnector's iteration. Keeps the blocks of finished requests until no save reads them.
//
// Without a connector, and for a request that Cairn refused, nothing is found and nothing is saved; the engine computes
// everything.
//
// Thread safety: one thread at a time.
// Ownership: the scheduler; the connector and the requests outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/connector/scheduler_connector.h"
#include "examples/engine/device_pool.h"
#include "examples/engine/request.h"

namespace cairn::engine {

struct TierFigures {
  std::uint64_t loads = 0;
  std::uint64_t loaded_tokens = 0;   // that were loaded from tiers
  std::uint64_t missing_tokens = 0;  // whose load failed: they were computed
  std::uint64_t refused = 0;         // requests that Cairn refused
  std::uint64_t saved_in_step = 0;   // blocks whose save was given out with the step that computes them
  std::string refusal = {};          // why, of the first one
};

class SchedulerTiers {
 public:
  // `connector` may be null: without Cairn.
  explicit SchedulerTiers(SchedulerConnector* connector) : connector_(connector) {}

  void add(Request& request);
  // How much of it tiers have beyond the first `local_tokens`.
  [[nodiscard]] SchedulerConnector::Match match(Request& request, std::size_t local_tokens);
  // It has blocks now, for `local_tokens` and for the next `loaded_tokens`, which are to be loaded. False if Cairn
  // refused: nothing is loaded, now or later.
  [[nodiscard]] bool allocated(Request& request, std::size_t local_tokens, std::size_t loaded_tokens);
  // It loses its blocks.
  void preempt(Request& request);
  // It computes so many tokens in the present iteration.
  void schedule(Request& request, std::size_t tokens);
  // Ends the iteration, and makes the metadata for the ranks.
  [[nodiscard]] Status build(std::uint64_t iteration, std::vector<std::byte>& metadata);
  // The request has ended: blocks that no save reads go back to the pool, the others when they are released.
  void finish(Request& request, RequestEnding ending, DevicePool& pool);

  struct Loaded {
    Request* request;
    std::size_t tokens;  // on the device now, from the first on
  };
  // Loads that have ended. Blocks that were kept for a save go back to the pool.
  [[nodiscard]] std::vector<Loaded> take_outcomes(DevicePool& pool);
  // Counts the tokens of an in-step load that were loaded, and those that were not.
  void count_load(std::size_t arrived_tokens, std::size_t missing_tokens);

  [[nodiscard]] bool keeps_blocks() const { return !kept_.empty(); }
  [[nodiscard]] const TierFigures& figures() const { return figures_; }

 private:
  [[nodiscard]] static bool is_told(const Request& request) { return request.handle && !request.refused; }
  void refuse(Request& request, const Error& error);

  SchedulerConnector* connector_;
  std::unordered_map<RequestHandle, Request*> requests_;
  std::unordered_map<RequestId, std::vector<DeviceBlock>> kept_;  // of finished requests
  struct Scheduled {
    Request* request = nullptr;
    std::size_t tokens = 0;
  };
  std::vector<Scheduled> scheduled_;  // in the present iteration
  std::vector<RequestHandle> preempted_;
  TierFigures figures_;
};

}  // namespace cairn::engine
