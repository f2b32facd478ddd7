// RankLeader: what a RankGroup and its executor stand on: members and copies under one lock, and the thread that serves
// them.
//
// Does:     callers put down what they want (copies, notices, cancels) in the order in which they want it; the thread does
//           it, gives messages to ranks and takes theirs. What follows from a change is worked out under the lock and
//           carried out after it: no callback runs with the lock held.
// Owner:    RankGroup, its ports and its executor share it; the group stops it. Threads: any.
// Time:     a clock that is moved by hand is looked at when something happens, and when it is poked.
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
#include <thread>
#include <variant>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/ranks/rank_copies.h"
#include "cairn/ranks/rank_group.h"
#include "cairn/ranks/rank_members.h"
#include "cairn/ranks/rank_server.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class RankLeader : private RankServer::User {
 public:
  RankLeader(RankGroup::Options options, std::unique_ptr<RankServer> server);
  ~RankLeader() override;
  void start();
  // The thread ends, links are closed; nothing is told of it. If the executor is still there, because the stop of its manager
  // was given up, that is when the executor ends; from here on nobody is told of changes.
  void stop();

  void open(const ManagerConfig& config);
  void tell(const RankNotice& notice);
  [[nodiscard]] Result<RankLink> join(std::uint32_t rank, RankGroup::Deliver deliver);
  [[nodiscard]] std::vector<RankStatus> status() const;
  [[nodiscard]] Status wait_for_ranks(Duration longest) const;
  [[nodiscard]] const RankGroup::Options& options() const { return options_; }
  [[nodiscard]] std::optional<RankAddress> address() const { return server_->address(); }

  // --- for ports of ranks of this process ---
  void send(RankLink link, std::uint32_t generation, const RankMessage& message);
  // When it returns, nothing is delivered any more; on the thread itself: after the present call. Needs no memory: a stop
  // has no way to say that there is none.
  void leave(RankLink link);

  // --- for the executor ---
  void take_executor();
  [[nodiscard]] Result<TransferId> submit(TransferLedger& ledger, Transfer&& transfer);
  void cancel(TransferLedger& ledger, TransferId transfer);
  void poke() { server_->wake(); }
  // Cancels everything, waits until no rank has a copy in hand, then gives up on those that have. Returns when no
  // transfer is held any more. Needs no memory either.
  void end_executor();

 private:
  struct AskedCopy {
    std::shared_ptr<ActiveTransfer> transfer;
  };
  struct AskedCancel {
    TransferId transfer{};
  };
  using Asked = std::variant<AskedCopy, AskedCancel, RankNotice>;
  // How the executor ends: after what was asked before.
  enum class End : std::uint8_t { kNotYet, kCancelAll, kGiveUp };
  struct Heard {  // from a rank of this process
    RankLink link{};
    std::uint32_t generation = 0;
    std::optional<RankMessage> message = {};  // none: its port is destroyed
  };
  // A rank of this process, until its port is destroyed and what follows from that is worked out.
  struct Local {
    std::shared_ptr<const RankGroup::Deliver> deliver = {};  // none: its port is destroyed
    std::list<Heard> leaving = {};                           // what will be heard then
  };
  struct Outgoing {
    RankLink link{};
    std::uint32_t generation = 0;
    std::shared_ptr<const RankMessage> message;
  };
  // To be carried out in this order, without the lock.
  using Due = std::vector<std::variant<Outgoing, RankHangUp, RankForget, RankChange>>;

  // The server's.
  std::optional<TimePoint> work() override CAIRN_EXCLUDES(mutex_);
  RankLink accepted(const RankPeer& peer, std::optional<std::uint32_t> user) override CAIRN_EXCLUDES(mutex_);
  bool received(RankLink link, const RankDecoder::Received& message) override CAIRN_EXCLUDES(mutex_);
  void broken(RankLink link, const Error& error) override CAIRN_EXCLUDES(mutex_);
  void ended(RankLink link) override CAIRN_EXCLUDES(mutex_);

  void take_heard() CAIRN_REQUIRES(mutex_);
  void take_asked() CAIRN_REQUIRES(mutex_);
  void take_message(RankLink link, std::uint32_t generation, const RankMessage& message) CAIRN_REQUIRES(mutex_);
  void look_at_clock() CAIRN_REQUIRES(mutex_);
  void do_asked(AskedCopy& asked) CAIRN_REQUIRES(mutex_);
  void do_asked(const AskedCancel& asked) CAIRN_REQUIRES(mutex_);
  void give_up_copies() CAIRN_REQUIRES(mutex_);
  void do_asked(const RankNotice& asked) CAIRN_REQUIRES(mutex_);
  void take_events() CAIRN_REQUIRES(mutex_);
  void take_event(RankSend& event) CAIRN_REQUIRES(mutex_);
  void take_event(const RankHangUp& event) CAIRN_REQUIRES(mutex_);
  void take_event(const RankIsReady& event) CAIRN_REQUIRES(mutex_);
  void take_event(const RankIsGone& event) CAIRN_REQUIRES(mutex_);
  void take_event(const RankIsOver& event) CAIRN_REQUIRES(mutex_);
  void take_event(const RankForget& event) CAIRN_REQUIRES(mutex_);
  void send_to_all(RankMessage message) CAIRN_REQUIRES(mutex_);
  void cancel_on_ranks(const RankCopies::Needless& needless) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool has_no_copies() const CAIRN_REQUIRES(mutex_);
  void carry_out(const Outgoing& due) CAIRN_EXCLUDES(mutex_);
  void carry_out(const RankHangUp& due) { server_->hang_up(due.link); }
  void carry_out(const RankForget& due) { server_->forget(due.link); }
  void carry_out(const RankChange& due) CAIRN_EXCLUDES(mutex_);

  const RankGroup::Options options_;
  mutable Mutex mutex_{LockRank::kExecutor};
  mutable std::condition_variable_any changed_;  // somebody is ready or gone, a copy is over, a delivery is
  RankMembers members_ CAIRN_GUARDED_BY(mutex_);
  RankCopies copies_ CAIRN_GUARDED_BY(mutex_);
  std::deque<Asked> asked_ CAIRN_GUARDED_BY(mutex_);
  std::list<Heard> heard_ CAIRN_GUARDED_BY(mutex_);
  Due due_ CAIRN_GUARDED_BY(mutex_);
  std::map<RankLink, Local> local_ CAIRN_GUARDED_BY(mutex_);
  std::optional<RankLink> delivering_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t next_link_ CAIRN_GUARDED_BY(mutex_) = 1;
  Duration shutdown_ CAIRN_GUARDED_BY(mutex_) = std::chrono::seconds(5);
  bool is_left_ CAIRN_GUARDED_BY(mutex_) = false;     // its group is gone
  bool is_stopped_ CAIRN_GUARDED_BY(mutex_) = false;  // its thread, or it will be in a moment
  bool has_executor_ CAIRN_GUARDED_BY(mutex_) = false;
  End end_ CAIRN_GUARDED_BY(mutex_) = End::kNotYet;  // what the thread is to do
  const std::unique_ptr<RankServer> server_;
};

}  // namespace cairn
