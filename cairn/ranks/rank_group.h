// RankGroup: the leader's side of its ranks: who is there, and copies that every one of them carries out on its part.
//
// Does:     takes ranks that connect (or join from this process), knows each by a generation that grows with every
//           connection, and spreads copies over them. A block is done only when every rank says so; its checksum is made of
//           those of all ranks, in their order.
// Dies:     a rank that closes its connection, or says nothing for Options::silence, is gone: the copies it takes part in
//           fail at once, and only those; later ones fail until it is back. What it had in hand is settled only when it is
//           proven to be over: it comes back, which it does only when its old copies are, or its process is dead.
// Old:      nothing that an earlier generation says is taken. Bytes in host memory of an earlier generation are never
//           read: a block that was written there before a rank went and came back is a mismatch, and dropped.
// Twice:    a rank that is heard keeps its place: another process that says it is the same rank is refused, and told which
//           one has it. The same process may connect again; its first connection is given up then.
// Trust:    Unix sockets: the peer's user must be ours, by the socket's credentials. TCP: both sides prove that they know
//           the secret; frames are checked for damage, not encrypted.
// Owner:    whoever leads; outlives its executor, unless the stop of the executor's manager was given up. Threads: any; one of its own serves the connections.
// Fails:    make(): an address that cannot be listened on, TCP without a secret.
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
#include "cairn/manager/manager_config.h"
#include "cairn/ranks/leader_id.h"
#include "cairn/ranks/rank_address.h"
#include "cairn/ranks/rank_message.h"
#include "cairn/transfer/executor.h"

namespace cairn {

// A rank is ready, or is gone.
struct RankChange {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
  bool is_there = true;
  std::string reason = {};  // why it is gone
};

struct RankStatus {
  bool is_there = false;
  std::uint32_t generation = 0;   // the latest; 0: never seen
  std::uint64_t process = 0;      // its id, where the socket tells; 0: not known
  std::uint64_t block_bytes = 0;  // that it has of one block
  std::uint32_t copies = 0;       // in its hands, those of earlier generations that are not proven over included
  std::string reason = {};        // why it is not there
};

class RankGroup {
 public:
  struct Options {
    std::uint32_t ranks = 1;
    std::optional<RankAddress> address = {};  // none: all ranks are of this process
    std::string secret = {};
    Duration heartbeat = std::chrono::milliseconds(500);
    Duration silence = std::chrono::seconds(5);
    std::uint32_t transfers = 256;    // under way at once
    std::optional<LeaderId> id = {};  // std::nullopt: drawn at random by make()
    const Clock* clock = &steady_clock();
    std::function<void(const RankChange&)> told = {};  // on a thread of the group; may not wait
  };
  [[nodiscard]] static Result<std::unique_ptr<RankGroup>> make(Options options);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();

  // What ranks are told when they come; those that come before wait for it. Once.
  void open(const ManagerConfig& config);
  // Moves the blocks of the leader's manager: ManagerParts::elsewhere. Which tiers a plan joins is told by the kinds of
  // memory: device is G1, pinned is G2, file is G3. One at a time. On a clock that is moved by hand, its
  // check_deadlines() is what makes the group look at it, heartbeats included.
  [[nodiscard]] std::unique_ptr<TransferExecutor> make_executor();
  // To every rank that is there, in order with the copies; one that is not is not told later (see Options::told).
  void tell(const RankNotice& notice);

  // A rank of this process joins: `deliver` gets what it is sent, one message at a time, on a thread of the group: it may
  // not wait, and may be called before join() returns. The talk begins with the welcome. A refusal is the last that is
  // delivered: destroy the port when nothing is in hand any more, and join again. kAlreadyExists: the rank is there.
  using Deliver = std::function<void(std::uint32_t generation, const RankMessage&)>;
  class LocalPort;
  [[nodiscard]] Result<std::unique_ptr<LocalPort>> join(std::uint32_t rank, Deliver deliver);

  // Of this run of the leader: the metadata of iterations has to carry it.
  [[nodiscard]] LeaderId id() const;
  // Where it listens, the port filled in.
  [[nodiscard]] std::optional<RankAddress> address() const;
  [[nodiscard]] std::vector<RankStatus> status() const;
  // Waits until all ranks are ready. kExpired: names those that are not.
  [[nodiscard]] Status wait_for_ranks(Duration longest) const;

 private:
  class Impl;
  explicit RankGroup(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// What a rank of this process answers through. Destroying it is a rank that is gone and proven dead.
class RankGroup::LocalPort {
 public:
  virtual ~LocalPort() = default;
  virtual void send(std::uint32_t generation, const RankMessage& message) = 0;
};

}  // namespace cairn
