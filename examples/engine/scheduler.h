// Scheduler: which tokens of which requests each step computes, and in which blocks.
//
// Does:     continuous batching. Running requests come first, in order of arrival; then waiting ones, as long as the step
//           has tokens and the pool has blocks. A prompt that does not fit into a step is computed in chunks. Blocks are
//           given as they are needed; when there is none, the request that arrived last loses its blocks and waits again,
//           and what it had is computed again later.
// Fails:    submit() refuses a request that could never run: longer than the model's positions or the pool.
// Owner:    the engine, which owns the requests as well and keeps them until they are finished.
// Threads:  one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "examples/engine/device_pool.h"
#include "examples/engine/request.h"

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
  std::uint64_t preemptions = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config) : config_(config), pool_(config.device_blocks) {}

  [[nodiscard]] Status submit(Request* request);
  [[nodiscard]] bool idle() const { return waiting_.empty() && running_.empty(); }

  // What the next step computes. Requires: not idle, and the last step's samples were told.
  [[nodiscard]] const StepInput& schedule();
  // What the ranks answered to it: one sample for each of its sampled_rows.
  void update(std::span<const Sample> samples);

  // Forgets the engine's own prefix cache.
  void forget_device() { pool_.forget_all(); }
  [[nodiscard]] const SchedulerFigures& figures() const { return figures_; }
  [[nodiscard]] const DevicePool& pool() const { return pool_; }

 private:
  struct Scheduled {
    Request* request;
    std::size_t count;  // tokens of it in this step
    bool sampled;
  };

  void schedule_running();
  void schedule_waiting();
  // Blocks for its tokens up to `tokens`, if there are any.
  [[nodiscard]] bool give_blocks(Request& request, std::size_t tokens);
  // The same, at the cost of requests that arrived later. False: it lost its own.
  [[nodiscard]] bool give_blocks_or_preempt(Request& request, std::size_t tokens);
  void preempt_last();
  void add_to_step(Request& request, std::size_t count);
  void append_sample(Request& request, const Sample& sample);
  void cache_computed_blocks(Request& request);

  SchedulerConfig config_;
  DevicePool pool_;
  std::deque<Request*> waiting_;
  std::vector<Request*> running_;  // in order of arrival
  StepInput step_;
  std::vector<Scheduled> scheduled_;
  bool preempted_in_step_ = false;
  SchedulerFigures figures_;
};

}  // namespace cairn::engine
