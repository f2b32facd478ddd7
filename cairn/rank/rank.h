// Rank: one rank as its engine sees it: the engine's device memory, host memory and a file, and the transfers between
// them that the leader asks for.
//
// The rank joins the leader, allocates host memory and a file (rank_memory.h says its name; the leader knows what
// is in the blocks) as the leader's configuration says, carries out transfers with this machine's executors and reports the
// outcome of every block. The parts of a block (groups of layers, GPUs) are copied side by side; the block is done when all
// of them are.
//   - A transfer that touches device blocks is held back until the engine has reached its mark (reached()).
//   - Blocks that the engine needs while it computes (expect()) are loaded layer by layer, first layers first.
//   - fence() waits until no transfer reads the blocks, and no load that has begun writes to them. From then on no transfer
//     of their old content succeeds.
//   - Saves of what the present step computes read each layer once that is reached (reached_layers()), and succeed only if
//     the whole step is.
//   - What was computed before this rank's first step, by a rank that died, is not saved: this rank does not have it.
// If the leader is gone, transfers are cancelled, those that have begun are waited for, and the rank connects again,
// without a limit, under a new generation. The engine continues without a cache meanwhile.
// A leader that was started again is another leader: it has another LeaderId. Marks, fences and expectations belong to the
// leader that the engine follows. Until the engine follows a new leader, transfers of that leader that touch device blocks
// wait; once it does, no transfer of an earlier leader touches the device.
//
// Thread safety: any thread may call. One thread of its own talks to the leader.
// Ownership:     the engine's worker process. Destroying a rank cancels transfers, waits for those that have begun and
//                flushes the file, up to twice the leader's `shutdown` and a second. I/O that has not returned by then is
//                left to a thread of its own, with host memory and file, and a line on stderr says so. Such I/O may still
//                touch the engine's device memory, which is not Cairn's to keep.
// Errors:        connect(), join(): the leader refuses the rank (another number of ranks, device memory that is not its
//                share of the model), or memory or the file cannot be had.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/layout/layer_groups.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/transfer/step_event.h"
#include "cairn/wire/local_leader.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

class Rank {
 public:
  struct Options {
    std::uint32_t rank = 0;
    RankGrid ranks = 1;
    // With pipeline parallelism: the number in the model of the first layer of `device`. std::nullopt: the layers are dealt
    // evenly (even_layers()), or this is the first stage.
    std::optional<std::uint32_t> first_layer = {};
    LayoutGroups device;  // the engine's; block i has a part in every group
    std::string secret = {};
    const Clock* clock = &steady_clock();
    // Wraps each executor, to inject faults.
    std::function<std::unique_ptr<TransferExecutor>(ExecutorKind, std::unique_ptr<TransferExecutor>)> around = {};
    // Gets the broadcasts of the leader's connector, in order with the transfers, on the rank's thread. May not wait.
    std::function<void(const LeaderId& leader, std::span<const std::byte>)> on_broadcast = {};
    // How long connect() and join() try without a sign that the leader has accepted this rank. A leader that waits for another
    // rank first, and the time for memory and file, up to 10 minutes for each rank, do not count.
    Duration first_connection = std::chrono::seconds(60);
  };
  // Returns when the leader has accepted the rank.
  [[nodiscard]] static Result<std::unique_ptr<Rank>> connect(const RankAddress& leader, Options options);
  // The same with a leader of this process, which outlives the rank.
  [[nodiscard]] static Result<std::unique_ptr<Rank>> join(LocalLeader& leader, Options options);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  virtual ~Rank() = default;

  // The engine's steps are this leader's from now on. Drops marks, fences and expectations of another leader, and its
  // transfers that touch device blocks. Waits for those that have begun; returns false if one still touches device blocks at
  // the deadline. Never go back to a leader that was replaced. The first leader that the rank joins needs no call.
  [[nodiscard]] virtual bool follow(const LeaderId& leader, TimePoint deadline) = 0;

  // The engine has reached the mark once `after` and the events of all earlier marks have ended. Never waits. Marks do
  // not go back.
  virtual void reached(StepMark mark, StepEventPtr after) = 0;
  void reached(StepMark mark) { reached(mark, nullptr); }
  // The same of the first `layers` layers of an iteration that has begun: in-step saves may read them.
  virtual void reached_layers(std::uint64_t iteration, std::uint32_t layers, StepEventPtr after) = 0;

  // The engine needs these blocks layer by layer in the present iteration. Replaces what was expected before. Call before
  // reached().
  virtual void expect(std::span<const BlockId> device_blocks) = 0;
  // Waits until all expected blocks have this layer, except those that are known not to come. kExpired at the deadline;
  // kUnavailable if some blocks will not come: do not use those that are lacking(). The bytes are not verified yet; the
  // outcome of the whole load says whether they are right.
  [[nodiscard]] virtual Status wait_for_layer(std::uint32_t model_layer, TimePoint deadline) = 0;
  // The expected blocks that do not have this layer.
  [[nodiscard]] virtual std::vector<BlockId> lacking(std::uint32_t model_layer) const = 0;
  // These blocks will not come, or too late: wait_for_layer() does not wait for them any more.
  virtual void pass_over(std::span<const BlockId> device_blocks) = 0;

  // From `overwritten_in` on the blocks hold something else. Waits for transfers of their old content until the deadline;
  // saves that are not over then fail, whatever they read, and later ones are cancelled. Returns whether all ended in time.
  [[nodiscard]] virtual bool fence(std::span<const BlockId> device_blocks, StepMark overwritten_in,
                                   TimePoint deadline) = 0;

  using State = RankState;
  [[nodiscard]] virtual State state() const = 0;

 protected:
  Rank() = default;
};

}  // namespace cairn
