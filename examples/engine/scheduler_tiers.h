// SchedulerTiers: what the engine's scheduler tells Cairn of its requests, and asks of it.
//
// Does:     the scheduler's half of using Cairn: one call for each thing that happens to a request, in the order of
//           SchedulerConnector's iteration. Keeps the blocks of finished requests until no save reads them.
// Without:  a connector, or for a request that Cairn refused, nothing is found and nothing is saved; the engine computes.
// Owner:    the scheduler; the connector and the requests outlive it.
// Threads:  one at a time.
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
  std::uint64_t loaded_tokens = 0;   // that came from tiers
  std::uint64_t missing_tokens = 0;  // that were to come and did not: they were computed
  std::uint64_t refused = 0;         // requests that Cairn would not go on with
  std::string refusal = {};          // why, of the first one
};

class SchedulerTiers {
 public:
  // None: without Cairn.
  explicit SchedulerTiers(SchedulerConnector* connector) : connector_(connector) {}

  void add(Request& request);
  // How much of it tiers have beyond the first `local_tokens`.
  [[nodiscard]] SchedulerConnector::Match match(Request& request, std::size_t local_tokens);
  // It has blocks now, for `local_tokens` and for `loaded_tokens` that are to be loaded behind them. False: they will not
  // be, and nothing more will be found for it.
  [[nodiscard]] bool allocated(Request& request, std::size_t local_tokens, std::size_t loaded_tokens);
  // It loses its blocks.
  void preempt(Request& request);
  // It computes in the present iteration.
  void schedule(Request& request);
  // Ends the iteration: what the ranks have to know of it.
  [[nodiscard]] Status build(std::uint64_t iteration, std::vector<std::byte>& metadata);
  // It is over; blocks that nothing reads go back to the pool, the others when they are released.
  void finish(Request& request, DevicePool& pool);

  struct Loaded {
    Request* request;
    std::size_t tokens;  // on the device now, from the first on
  };
  // Loads that are over. Blocks that were kept for a save go back to the pool.
  [[nodiscard]] std::vector<Loaded> take_outcomes(DevicePool& pool);
  // Tokens of a load within a step that came, and that did not.
  void count_load(std::size_t arrived_tokens, std::size_t missing_tokens);

  [[nodiscard]] bool keeps_blocks() const { return !kept_.empty(); }
  [[nodiscard]] const TierFigures& figures() const { return figures_; }

 private:
  [[nodiscard]] static bool is_told(const Request& request) { return request.handle && !request.refused; }
  void refuse(Request& request, const Error& error);

  SchedulerConnector* connector_;
  std::unordered_map<RequestHandle, Request*> requests_;
  std::unordered_map<RequestId, std::vector<DeviceBlock>> kept_;  // of finished requests
  std::vector<Request*> scheduled_;                               // in the present iteration
  std::vector<RequestHandle> preempted_;
  TierFigures figures_;
};

}  // namespace cairn::engine
