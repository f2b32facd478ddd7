// RankWorker: one rank: its part of every block, in the engine's device memory, in host memory and in a file of its own,
// and the copies between them that the leader asks for.
//
// The rank joins the leader, makes host memory and file (config.disk.path + ".r<rank>of<ranks>": blocks without entries; the
// leader knows what is in them) as the leader's configuration says, carries copies out with this machine's executors and
// says what became of every block. A block's parts (groups of layers, GPUs) are copied side by side; it is done when all of
// them are.
//   - A copy that touches device blocks waits until the engine is so far (reached()).
//   - Blocks that the engine wants while it computes (expect()) are loaded layer by layer, first layers first.
//   - fence() waits until no copy reads the blocks, nor a load that was begun writes to them; from then on no copy of what
//     they held before succeeds: what began earlier and is not over is told as failed, whatever it read.
//   - What was computed before this rank's first step, by one that died, is not saved: the rank has none of it.
// When the leader is gone, copies are cancelled, what is under way is waited for, and the leader is tried again, for ever,
// under a new generation. The engine goes on without a cache meanwhile.
// A leader that was started again is another leader: it has another LeaderId. Marks, fences and expectations are those of the
// leader that the engine follows. Until the engine follows a new leader, copies of that leader that touch device blocks
// wait; once it does, nothing that an earlier leader asked for touches the device.
//
// Thread safety: any thread may call. One thread of its own talks to the leader.
// Ownership:     the engine's worker process. Destroying it cancels copies, waits for those that have begun and flushes the
//                file, up to twice the leader's `shutdown` and a second. I/O that has not returned by then is left to a
//                thread of its own, with host memory and file; a line on stderr says so. The engine's own device memory is
//                not Cairn's to keep: such I/O may still touch it.
// Errors:        connect(), join(): what the leader refuses (another number of ranks, a shape that is not its share of the
//                model's), memory or a file that is not to be had.
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
#include "cairn/ranks/leader_id.h"
#include "cairn/ranks/rank_address.h"
#include "cairn/ranks/rank_group.h"
#include "cairn/transfer/step_event.h"
#include "cairn/transfer/step_mark.h"

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
    std::function<void(const LeaderId& leader, std::span<const std::byte>)> notice = {};
    Duration first_connection = std::chrono::seconds(60);  // that connect() tries for
  };
  // Returns when the leader has taken it.
  [[nodiscard]] static Result<std::unique_ptr<RankWorker>> connect(const RankAddress& leader, Options options);
  // The same in the leader's process; the group outlives it.
  [[nodiscard]] static Result<std::unique_ptr<RankWorker>> join(RankGroup& leader, Options options);
  RankWorker(const RankWorker&) = delete;
  RankWorker& operator=(const RankWorker&) = delete;
  ~RankWorker();

  // The engine's steps are this leader's from now on: marks, fences and expectations of another one are dropped, and so are
  // its copies that touch device blocks and have not begun. Waits for those that have; returns false if one still touches
  // device blocks at the deadline. Never go back to a leader that was replaced. The first leader that the rank joins needs
  // no call.
  [[nodiscard]] bool follow(const LeaderId& leader, TimePoint deadline);

  // The engine is so far once `after` is over, and what earlier marks came after; marks do not go back. Never waits.
  void reached(StepMark mark, StepEventPtr after = {});

  // These are wanted layer by layer in the present iteration; replaces what was expected before. Before reached().
  void expect(std::span<const BlockId> device_blocks);
  // Until this layer is there of all that is expected, but for what is known not to come. kExpired, or kUnavailable where
  // some will not come: those that are lacking are not to be used. What is there is not verified yet: that is told with the
  // whole load.
  [[nodiscard]] Status wait_for_layer(std::uint32_t model_layer, TimePoint deadline);
  // Blocks that are expected and have not got this layer.
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t model_layer) const;
  // These will not come, or too late: no layer of them is waited for any more.
  void pass_over(std::span<const BlockId> device_blocks);

  // See above; whether every copy was over by itself.
  [[nodiscard]] bool fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline);

  struct State {
    bool is_connected = false;
    LeaderId leader = {};  // that it is, or was last, connected to
    std::uint32_t generation = 0;
    std::uint32_t copies = 0;  // in hand
    std::uint64_t done = 0;    // blocks
    std::uint64_t failed = 0;  // blocks, of any reason
    std::string reason = {};   // why it is not connected
    std::string damage = {};   // what was wrong with its file of the disk tier, and what became of it
  };
  [[nodiscard]] State state() const;

 private:
  class Impl;
  [[nodiscard]] static Result<std::unique_ptr<RankWorker>> begin(std::unique_ptr<RankLine> line, Options options);
  static void end(std::unique_ptr<Impl> impl);
  explicit RankWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cairn
