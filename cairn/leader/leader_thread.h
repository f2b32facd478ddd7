// LeaderThread: the members and transfers of a leader under one lock, and the thread that serves them.
//
// Callers queue commands (transfers, cancels, broadcasts); the thread carries them out in order, sends messages to ranks and
// handles theirs. The consequences of a change are worked out under the lock and carried out after it is released: no
// callback runs with the lock held.
//
// Thread safety: any thread may call. A virtual clock is looked at when something happens, and at poke().
// Ownership:     shared by the Leader, its ports and its executor; the Leader stops it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/leader/leader.h"
#include "cairn/leader/leader_members.h"
#include "cairn/leader/leader_server.h"
#include "cairn/leader/leader_transfers.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class LeaderThread : private LeaderServer::User {
 public:
  LeaderThread(Leader::Options options, std::unique_ptr<LeaderServer> server);
  ~LeaderThread() override;
  void start();
  // Ends the thread and closes all connections; Options::on_change is not called again. If the executor still exists,
  // because the shutdown of its manager timed out, the thread ends with the executor instead.
  void stop();

  void open(const ManagerConfig& config, const TierSizes& sizes);
  void broadcast(const RankBroadcast& message);
  void confirm(StepMark mark, std::span<const BlockId> blocks);
  void withdraw(StepMark mark, std::span<const BlockId> blocks);
  [[nodiscard]] Result<ConnectionId> join(const RankClaim& claim, LocalLeader::Deliver deliver);
  [[nodiscard]] std::vector<RankStatus> status() const;
  [[nodiscard]] Status wait_for_ranks(Duration longest) const;
  [[nodiscard]] const Leader::Options& options() const { return options_; }
  [[nodiscard]] std::optional<RankAddress> address() const { return server_->address(); }

  // --- for ports of ranks of this process ---
  void send(ConnectionId connection, std::uint32_t generation, const RankMessage& message);
  // When it returns, nothing more is delivered; if the thread itself calls it: after the present delivery. Allocates
  // nothing, since a destructor calls it.
  void leave(ConnectionId connection);

  // --- for the executor ---
  void take_executor();
  [[nodiscard]] Result<TransferId> submit(TransferLedger& ledger, Transfer&& transfer);
  void cancel(TransferLedger& ledger, TransferId transfer);
  void poke() { server_->wake(); }
  // Cancels all transfers, waits for the ranks up to config.shutdown, then disconnects those that still have transfers.
  // Returns when no transfer is left. Allocates nothing either.
  void end_executor();

 private:
  // --- what callers ask for, in order ---
  struct SubmitCommand {
    std::shared_ptr<ActiveTransfer> transfer;
  };
  struct CancelCommand {
    TransferId transfer{};
  };
  // What the engine said of blocks that in-step saves read.
  struct ConfirmCommand {
    StepMark mark = {};
    std::vector<BlockId> blocks = {};
  };
  struct WithdrawCommand {
    StepMark mark = {};
    std::vector<BlockId> blocks = {};
  };
  using Command = std::variant<SubmitCommand, CancelCommand, RankBroadcast, ConfirmCommand, WithdrawCommand>;
  // How the executor ends, after the commands before.
  enum class End : std::uint8_t { kNotYet, kCancelAll, kGiveUp };

  // --- ranks of this process ---
  struct LocalMessage {
    ConnectionId connection{};
    std::uint32_t generation = 0;
    std::optional<RankMessage> message = {};  // std::nullopt: its port was destroyed
  };
  struct LocalRank {
    std::shared_ptr<const LocalLeader::Deliver> deliver = {};  // null once its port is destroyed
    std::list<LocalMessage> farewell = {};                     // its last message, allocated when it joins
  };

  // --- what is to be done when the lock is released, in this order ---
  struct Outgoing {
    ConnectionId connection{};
    std::uint32_t generation = 0;
    std::shared_ptr<const RankMessage> message;
  };
  using Actions = std::vector<std::variant<Outgoing, MemberHangUp, MemberForget, RankChange>>;

  // LeaderServer::User
  std::optional<TimePoint> work() override CAIRN_EXCLUDES(mutex_);
  ConnectionId accepted(const RankPeer& peer, std::optional<std::uint32_t> user) override CAIRN_EXCLUDES(mutex_);
  bool received(ConnectionId connection, const RankDecoder::Received& message) override CAIRN_EXCLUDES(mutex_);
  void broken(ConnectionId connection, const Error& error) override CAIRN_EXCLUDES(mutex_);
  void ended(ConnectionId connection) override CAIRN_EXCLUDES(mutex_);

  void take_local_messages() CAIRN_REQUIRES(mutex_);
  void take_message(ConnectionId connection, std::uint32_t generation, const RankMessage& message)
      CAIRN_REQUIRES(mutex_);
  void take_commands() CAIRN_REQUIRES(mutex_);
  void carry_out(SubmitCommand& command) CAIRN_REQUIRES(mutex_);
  void carry_out(const CancelCommand& command) CAIRN_REQUIRES(mutex_);
  void carry_out(const RankBroadcast& message) CAIRN_REQUIRES(mutex_) { send_to_all(message); }
  void carry_out(const ConfirmCommand& command) CAIRN_REQUIRES(mutex_) {
    cancel_on_ranks(transfers_.confirm(command.mark, command.blocks));
  }
  void carry_out(const WithdrawCommand& command) CAIRN_REQUIRES(mutex_) {
    cancel_on_ranks(transfers_.withdraw(command.mark, command.blocks));
  }
  void enqueue(Command command) CAIRN_EXCLUDES(mutex_);
  void give_up_transfers() CAIRN_REQUIRES(mutex_);
  void look_at_clock() CAIRN_REQUIRES(mutex_);

  void take_events() CAIRN_REQUIRES(mutex_);
  void take_event(MemberSend& event) CAIRN_REQUIRES(mutex_);
  void take_event(const MemberReady& event) CAIRN_REQUIRES(mutex_);
  void take_event(const MemberGone& event) CAIRN_REQUIRES(mutex_);
  void take_event(const MemberSettled& event) CAIRN_REQUIRES(mutex_);
  void take_event(const MemberHangUp& event) CAIRN_REQUIRES(mutex_) { actions_.emplace_back(event); }
  void take_event(const MemberForget& event) CAIRN_REQUIRES(mutex_) { actions_.emplace_back(event); }
  void send_to_all(RankMessage message) CAIRN_REQUIRES(mutex_);
  void send_to(std::uint32_t rank, std::shared_ptr<const RankMessage> message) CAIRN_REQUIRES(mutex_);
  void cancel_on_ranks(const LeaderTransfers::Needless& needless) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool has_no_transfers() const CAIRN_REQUIRES(mutex_);

  void act(const Outgoing& action) CAIRN_EXCLUDES(mutex_);
  void act(const MemberHangUp& action) { server_->hang_up(action.connection); }
  void act(const MemberForget& action) { server_->forget(action.connection); }
  void act(const RankChange& action) CAIRN_EXCLUDES(mutex_);

  const Leader::Options options_;
  mutable Mutex mutex_{LockRank::kExecutor};
  mutable std::condition_variable_any changed_;  // a rank is ready or gone, a transfer or a delivery has ended
  LeaderMembers members_ CAIRN_GUARDED_BY(mutex_);
  LeaderTransfers transfers_ CAIRN_GUARDED_BY(mutex_);
  std::deque<Command> commands_ CAIRN_GUARDED_BY(mutex_);
  std::list<LocalMessage> local_messages_ CAIRN_GUARDED_BY(mutex_);
  std::map<ConnectionId, LocalRank> local_ranks_ CAIRN_GUARDED_BY(mutex_);
  std::optional<ConnectionId> delivering_ CAIRN_GUARDED_BY(mutex_);
  Actions actions_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t next_connection_ CAIRN_GUARDED_BY(mutex_) = 1;
  Duration shutdown_ CAIRN_GUARDED_BY(mutex_) = std::chrono::seconds(5);
  bool is_left_ CAIRN_GUARDED_BY(mutex_) = false;     // the Leader is destroyed
  bool is_stopped_ CAIRN_GUARDED_BY(mutex_) = false;  // the thread has ended, or is about to
  bool has_executor_ CAIRN_GUARDED_BY(mutex_) = false;
  End end_ CAIRN_GUARDED_BY(mutex_) = End::kNotYet;  // what the thread has to do
  const std::unique_ptr<LeaderServer> server_;
};

}  // namespace cairn
