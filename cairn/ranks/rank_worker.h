// RankWorker: one rank: its part of every block, in the engine's device memory, in host memory and in a file of its own,
// and the copies between them that the leader asks for.
//
// Does:     joins the leader, makes host memory and file as the leader's configuration says, carries copies out with this
//           machine's executors and says what became of every block. A block's parts (groups of layers, GPUs) are copied
//           side by side; it is done when all of them are.
// Steps:    a copy that touches device blocks waits until the engine is so far (reached()).
// Layers:   blocks that the engine wants while it computes (expect()) are loaded layer by layer, first layers first.
// Fences:   fence() waits until no copy reads the blocks, nor a load that was begun writes to them; from then on no copy of
//           what they held before succeeds: what began earlier and is not over is told as failed, whatever it read.
// Anew:     what was computed before this rank's first step, by one that died, is not saved: it has none of it.
// Lost:     when the leader is gone, copies are cancelled, what is under way is waited for, and the leader is tried again,
//           for ever, under a new generation. The engine goes on without a cache meanwhile.
//           Marks and fences of an earlier leader mean nothing to another one, and begin anew with it.
// File:     config.disk.path + ".r<rank>of<ranks>": slots without entries; what is in them the leader knows.
// Owner:    the engine's worker process. Threads: any; one of its own talks to the leader.
// Fails:    connect(), join(): what the leader refuses (another number of ranks, a shape that is not its share of the
//           model's), memory or a file that is not to be had.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/layout/layer_groups.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/ranks/rank_address.h"
#include "cairn/ranks/rank_group.h"
#include "cairn/ranks/step_mark.h"
#include "cairn/transfer/step_event.h"

namespace cairn {

class RankLine;

class RankWorker {
 public:
  struct Options {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    LayoutGroups device;  // the engine's; blocks of all groups have the same numbers
    std::string secret = {};
    const Clock* clock = &steady_clock();
    // Put around each executor: faults.
    std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
    // What the leader's connector says, in order with the copies; on the worker's thread, may not wait.
    std::function<void(std::span<const std::byte>)> notice = {};
    Duration first_connection = std::chrono::seconds(60);  // that connect() tries for
  };
  // Returns when the leader has taken it.
  [[nodiscard]] static Result<std::unique_ptr<RankWorker>> connect(const RankAddress& leader, Options options);
  // The same in the leader's process; the group outlives it.
  [[nodiscard]] static Result<std::unique_ptr<RankWorker>> join(RankGroup& leader, Options options);
  RankWorker(const RankWorker&) = delete;
  RankWorker& operator=(const RankWorker&) = delete;
  ~RankWorker();

  // The engine is so far once `after` is over, and what earlier marks came after; marks do not go back. Never waits.
  void reached(StepMark mark, StepEventPtr after = {});

  // These are wanted layer by layer in the present iteration; replaces what was expected before. Before reached().
  void expect(std::span<const SlotId> device_blocks);
  // Until this layer is there of all that is expected, but for what is known not to come. kExpired, or kUnavailable where
  // some will not come: those that are lacking are not to be used. What is there is not verified yet: that is told with the
  // whole load.
  [[nodiscard]] Status wait_for_layer(std::uint32_t model_layer, TimePoint deadline);
  // Blocks that are expected and have not got this layer.
  [[nodiscard]] std::vector<SlotId> lacking(std::uint32_t model_layer) const;
  // These will not come, or too late: no layer of them is waited for any more.
  void pass_over(std::span<const SlotId> device_blocks);

  // See above; whether every copy was over by itself.
  [[nodiscard]] bool fence(std::span<const SlotId> device_blocks, StepMark overwritten_in, TimePoint deadline);

  struct State {
    bool is_connected = false;
    std::uint32_t generation = 0;
    std::uint32_t copies = 0;  // in hand
    std::uint64_t done = 0;    // blocks
    std::uint64_t failed = 0;  // blocks, of any reason
    std::string reason = {};   // why it is not connected
  };
  [[nodiscard]] State state() const;

 private:
  class Impl;
  [[nodiscard]] static Result<std::unique_ptr<RankWorker>> begin(std::unique_ptr<RankLine> line, Options options);
  explicit RankWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
