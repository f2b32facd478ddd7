// Scheduler: chooses which tokens of which requests each step computes, and in which blocks.
//
// Continuous batching: running requests come first, in order of arrival, then waiting ones, as long as the step has
// tokens and the pool has blocks. A prompt that does not fit into a step is computed in chunks. Blocks are allocated as
// they are needed; if there are none, the request that arrived last is preempted: it loses its blocks, waits again, and
// is computed again later.
//
// Blocks that Cairn has beyond the device's own cache are loaded instead of computed: before the request runs, or layer
// by layer while its first step computes. Blocks whose load fails are computed.
//
// Thread safety: one thread at a time.
// Ownership: the engine, which also owns the requests and keeps them until they are finished.
// Errors: submit() refuses a request that can never run: longer than the model's positions or the pool. schedule()
// returns the error of Cairn's connector for a whole iteration.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/device_pool.h"
#include "examples/engine/request.h"
#include "examples/engine/scheduler_tiers.h"

namespace cairn::engine {

struct SchedulerConfig {
  std::uint32_t device_blocks = 64;
  std::uint32_t step_tokens = 64;  // the most rows of a step
  std::uint32_t max_running = 8;
  std::uint32_t max_positions = 1024;
  TokenId end_token = 0;
};

struct SchedulerFigures {
  std::uint64_t steps = 0;
  std::uint64_t computed_tokens = 0;    // rows, those computed again included
  std::uint64_t prefix_hit_tokens = 0;  // found in the engine's own cache
  std::uint64_t empty_steps = 0;        // of `steps`: only copies were left to wait for
  std::uint64_t preemptions = 0;
};

class Scheduler {
 public:
  // `connector` may be null: without Cairn.
  explicit Scheduler(const SchedulerConfig& config, SchedulerConnector* connector = nullptr)
      : config_(config), pool_(config.device_blocks), tiers_(connector) {}

  [[nodiscard]] Status submit(Request* request);
  // Every request is finished, and all blocks are free.
  [[nodiscard]] bool idle() const {
    return waiting_.empty() && loading_.empty() && running_.empty() && !tiers_.keeps_blocks();
  }

  // The next step; empty while there is nothing to do but wait for copies. Requires: not idle, and update() was called
  // for the last step.
  [[nodiscard]] Result<const StepInput*> schedule();
  // The output of the ranks for that step.
  void update(const StepOutput& output);

  // Forgets the engine's own prefix cache.
  void forget_device() { pool_.forget_all(); }
  [[nodiscard]] const SchedulerFigures& figures() const { return figures_; }
  [[nodiscard]] const TierFigures& tier_figures() const { return tiers_.figures(); }
  [[nodiscard]] const DevicePool& pool() const { return pool_; }

 private:
  struct Scheduled {
    Request* request;
    std::size_t count;  // tokens of it in this step
    bool sampled;
  };

  enum class Start { kComputes, kLoads, kAskAgain, kNoBlocks };

  // Requests whose loads have ended run.
  void take_loaded();
  void schedule_running();
  void schedule_waiting();
  // Gives a request its first blocks; with kComputes also its place in the step.
  [[nodiscard]] Start start(Request& request);
  // Releases all its device blocks.
  void take_blocks(Request& request);
  // Blocks for its tokens up to `tokens`, if there are any.
  [[nodiscard]] bool give_blocks(Request& request, std::size_t tokens);
  // The same, and preempts requests that arrived later if needed. False if the request itself was preempted.
  [[nodiscard]] bool give_blocks_or_preempt(Request& request, std::size_t tokens);
  void preempt_last();
  void run(Request& request);
  void add_to_step(Request& request, std::size_t count);
  // Whether the step loaded all its blocks. If not, the request goes back to the first missing block.
  [[nodiscard]] bool settle_load(Request& request, std::span<const DeviceBlock> failed_blocks);
  void append_sample(Request& request, const Sample& sample);
  void cache_computed_blocks(Request& request);

  SchedulerConfig config_;
  DevicePool pool_;
  SchedulerTiers tiers_;
  std::deque<Request*> waiting_;
  std::vector<Request*> loading_;  // they have blocks, which are being filled
  std::vector<Request*> running_;  // in order of arrival
  StepInput step_;
  std::vector<Scheduled> scheduled_;
  bool preempted_in_step_ = false;
  SchedulerFigures figures_;
};

}  // namespace cairn::engine
