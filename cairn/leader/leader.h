// Leader: the leader's side of its ranks: which of them are connected, and transfers that every rank carries out on its part
// of the blocks.
//
// A rank connects over a socket, or joins from this process. Every connection of a rank gets a higher generation. A block of
// a transfer is done only when all ranks say so; its checksum is that of the whole block, whatever ranks it is split over.
//   - Pipeline parallel: the stages must cover the layers of the model without gap or overlap. A rank whose layers do not fit
//     those of the ranks that are there is refused; the message names each rank's layers.
//   - A rank that closes its connection, or says nothing for Options::silence, is gone. The transfers it takes part in fail
//     at once; later ones fail until it is back. The blocks of those transfers are settled when they are proven untouched:
//     the rank is back, which it is only after its old transfers have ended, or its process is dead.
//   - Messages of an earlier generation are ignored. Bytes that were written to host memory under an earlier generation are
//     never read: such a block is a mismatch, and dropped.
//   - While a rank is connected, another process that claims to be the same rank is refused. The same process may connect
//     again; its first connection ends then.
//   - Trust: over a Unix socket the peer's user must be the leader's. Over TCP both sides prove that they know the secret;
//     frames are checked for damage, not encrypted.
//
// Thread safety: any thread may call. One thread of its own serves the connections.
// Ownership:     the leader outlives its executor, unless the shutdown of the executor's manager timed out.
// Errors:        make(): the address cannot be listened on; TCP without a secret.
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
#include "cairn/leader/block_footprint.h"
#include "cairn/manager/manager_config.h"
#include "cairn/wire/local_leader.h"
#include "cairn/wire/rank_address.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

class TransferExecutor;

class LeaderThread;

class Leader final : public LocalLeader {
 public:
  using Options = LeaderOptions;
  [[nodiscard]] static Result<std::unique_ptr<Leader>> make(Options options);
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;
  ~Leader();

  // Welcomes ranks from now on; those that connected before wait for this. Once.
  // `sizes`: refuses ranks whose blocks would take more.
  void open(const ManagerConfig& config, const TierSizes& sizes = {});
  // Moves the blocks of the leader's manager: ManagerParts::elsewhere. The memory kinds of a plan say which tiers it joins:
  // device is G1, pinned is G2, file is G3. Only one executor exists at a time. On a virtual clock, its check_deadlines()
  // also makes the leader look at the clock, for heartbeats.
  [[nodiscard]] std::unique_ptr<TransferExecutor> make_executor();
  // Sends the message to every rank that is ready, in order with the transfers. Ranks that are not ready never get it.
  void broadcast(const RankBroadcast& message);
  // A save with an in_step_mark() succeeds only once it is confirmed: the engine has computed the device blocks in that
  // iteration. If it has not, the save is withdrawn. Either may come before the save.
  void confirm(StepMark mark, std::span<const BlockId> blocks);
  void withdraw(StepMark mark, std::span<const BlockId> blocks);
  // A rank of this process.
  [[nodiscard]] Result<std::unique_ptr<Port>> join(const RankClaim& claim, Deliver deliver) override;

  [[nodiscard]] RankGrid ranks() const;
  // Of this run of the leader; the metadata of every iteration carries it.
  [[nodiscard]] LeaderId id() const;
  // Where it listens, with the port that the system chose.
  [[nodiscard]] std::optional<RankAddress> address() const;
  [[nodiscard]] std::vector<RankStatus> status() const;
  // Waits until all ranks are ready. kExpired names those that are not.
  [[nodiscard]] Status wait_for_ranks(Duration longest) const;

 private:
  explicit Leader(std::shared_ptr<LeaderThread> thread) : thread_(std::move(thread)) {}
  const std::shared_ptr<LeaderThread> thread_;  // shared with ports and the executor
};

}  // namespace cairn
