#include "cairn/leader/leader_thread.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/leader/block_footprint.h"
#include "cairn/wire/rank_proof.h"

namespace cairn {

namespace {

// Rounds with ranks of this process, which may answer at once, before it is the sockets' turn.
constexpr int kRounds = 16;

// On the system's clock, whatever the leader's clock: a thread waits.
std::chrono::steady_clock::time_point real_time_in(Duration longest) {
  return std::chrono::steady_clock::time_point(deadline_after(steady_clock().now(), longest));
}

}  // namespace

LeaderThread::LeaderThread(Leader::Options options, std::unique_ptr<LeaderServer> server)
    : options_(std::move(options)),
      members_({.leader = *options_.id,
                .ranks = options_.ranks,
                .secret = options_.secret,
                .heartbeat = limited(options_.heartbeat),
                .silence = limited(options_.silence)}),
      server_(std::move(server)) {}

LeaderThread::~LeaderThread() { server_->stop(); }

void LeaderThread::start() { server_->start(*this); }

void LeaderThread::stop() {
  {
    const MutexLock lock(mutex_);
    is_left_ = true;
    if (has_executor_) {
      return;
    }
    is_stopped_ = true;
    changed_.notify_all();
  }
  server_->stop();
}

void LeaderThread::open(const ManagerConfig& config, const TierSizes& sizes) {
  {
    const MutexLock lock(mutex_);
    shutdown_ = config.shutdown;
    // If neither of heads and ranks divides the other, no rank of one kind of layers fits, and says so.
    const Result<HeadShare> heads = share_of(0, options_.ranks.tensor, config.model.heads);
    members_.open({.config = config.to_toml(),
                   .layers = config.model.layers,
                   .replicas = heads ? heads->replicas : 1,
                   .shares = shares_memory(options_),
                   .host_blocks = config.host.blocks,
                   .disk_blocks = config.disk.blocks,
                   .sizes = sizes,
                   .make_memory = &SharedMemory::make},
                  options_.clock->now());
  }
  server_->wake();
}

void LeaderThread::enqueue(Command command) {
  {
    const MutexLock lock(mutex_);
    commands_.push_back(std::move(command));
  }
  server_->wake();
}

void LeaderThread::broadcast(const RankBroadcast& message) { enqueue(message); }

void LeaderThread::confirm(StepMark mark, std::span<const BlockId> blocks) {
  enqueue(ConfirmCommand{mark, {blocks.begin(), blocks.end()}});
}

void LeaderThread::withdraw(StepMark mark, std::span<const BlockId> blocks) {
  enqueue(WithdrawCommand{mark, {blocks.begin(), blocks.end()}});
}

Result<ConnectionId> LeaderThread::join(const RankClaim& claim, LocalLeader::Deliver deliver) {
  ConnectionId connection{};
  {
    const MutexLock lock(mutex_);
    connection = ConnectionId{next_connection_++};
    CAIRN_TRY(members_.join(connection, claim, options_.clock->now()));
    LocalRank local{.deliver = std::make_shared<const LocalLeader::Deliver>(std::move(deliver))};
    local.farewell.push_back({connection});
    local_ranks_.emplace(connection, std::move(local));
  }
  server_->wake();
  return connection;
}

void LeaderThread::send(ConnectionId connection, std::uint32_t generation, const RankMessage& message) {
  {
    const MutexLock lock(mutex_);
    local_messages_.push_back({connection, generation, message});
  }
  server_->wake();
}

void LeaderThread::leave(ConnectionId connection) {
  {
    const MutexLock lock(mutex_);
    LocalRank& local = local_ranks_.at(connection);
    local.deliver.reset();
    local_messages_.splice(local_messages_.end(), local.farewell);
    if (server_->is_own_thread()) {
      take_local_messages();
      server_->wake();
      return;
    }
  }
  server_->wake();
  const MutexLock lock(mutex_);
  // The thread works out the consequences, which allocates. When this returns, the rank may join again.
  while (delivering_ == connection || (!is_stopped_ && local_ranks_.contains(connection))) {
    changed_.wait(mutex_);
  }
}

std::vector<RankStatus> LeaderThread::status() const {
  const MutexLock lock(mutex_);
  std::vector<RankStatus> all;
  all.reserve(options_.ranks.count());
  for (const RankPresence& presence : members_.presence()) {
    const auto rank = static_cast<std::uint32_t>(all.size());
    all.push_back({.is_there = presence.is_there,
                   .generation = presence.generation,
                   .process = members_.peer_of(rank).process,
                   .block_bytes = members_.block_bytes(rank),
                   .layers = members_.layers(rank),
                   .is_reserved = members_.is_reserved(rank),
                   .transfers = transfers_.in_flight(rank),
                   .reason = presence.reason});
  }
  return all;
}

Status LeaderThread::wait_for_ranks(Duration longest) const {
  const auto until = real_time_in(longest);
  const MutexLock lock(mutex_);
  while (!members_.all_ready()) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout && !members_.all_ready()) {
      std::string missing;
      std::uint32_t rank = 0;
      for (const RankPresence& presence : members_.presence()) {
        if (!presence.is_there) {
          missing += str_cat(missing.empty() ? "" : "; ", "rank ", rank, ": ", presence.reason);
        }
        ++rank;
      }
      return fail(ErrorCode::kExpired, str_cat("not all ", options_.ranks.to_string(), " are ready: ", missing));
    }
  }
  return {};
}

// --- the executor ---

void LeaderThread::take_executor() {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(!has_executor_, "a leader has one executor at a time");
  has_executor_ = true;
}

// The ledger accepts the transfer and the command is queued under one lock, so that ranks get transfers, cancels and
// broadcasts in the order of the calls.
Result<TransferId> LeaderThread::submit(TransferLedger& ledger, Transfer&& transfer) {
  Result<TransferId> id = fail(ErrorCode::kInvalidArgument, "");
  {
    const MutexLock lock(mutex_);
    // Queued first: a transfer that the ledger has accepted must reach the thread.
    auto& command = std::get<SubmitCommand>(commands_.emplace_back(SubmitCommand{}));
    try {
      id = ledger.accept(std::move(transfer));
    } catch (...) {
      commands_.pop_back();
      throw;
    }
    command.transfer = id ? ledger.try_take() : nullptr;
    if (command.transfer == nullptr) {
      commands_.pop_back();
    }
    if (!id) {
      return id;
    }
  }
  server_->wake();
  return id;
}

void LeaderThread::cancel(TransferLedger& ledger, TransferId transfer) {
  {
    const MutexLock lock(mutex_);
    ledger.cancel(transfer);
    commands_.emplace_back(CancelCommand{transfer});
  }
  server_->wake();
}

bool LeaderThread::has_no_transfers() const {
  const auto submits = [](const Command& command) { return std::holds_alternative<SubmitCommand>(command); };
  return transfers_.empty() && std::none_of(commands_.begin(), commands_.end(), submits);
}

// A rank that does not answer in time may still copy. That is safe: this process frees none of the bytes, also not those that
// replicas share, and the rank is disconnected, so it comes back only after its transfers have ended. Until then no transfer
// begins, because each of them takes all ranks, and no block that it touches is read.
void LeaderThread::end_executor() {
  const auto wait = [this](Duration longest) {
    const auto until = real_time_in(longest);
    const MutexLock lock(mutex_);
    while (!has_no_transfers() && changed_.wait_until(mutex_, until) != std::cv_status::timeout) {
    }
    return has_no_transfers();
  };
  Duration shutdown{};
  {
    const MutexLock lock(mutex_);
    shutdown = shutdown_;
    end_ = End::kCancelAll;
  }
  server_->wake();
  if (!wait(shutdown)) {
    {
      const MutexLock lock(mutex_);
      end_ = End::kGiveUp;
    }
    server_->wake();
    CAIRN_CHECK(wait(Duration::max()), "no transfer is left after give_up()");
  }
  const MutexLock lock(mutex_);
  has_executor_ = false;
}

// --- the thread ---

std::optional<TimePoint> LeaderThread::work() {
  std::optional<TimePoint> next;
  for (int round = 0; round < kRounds; ++round) {
    Actions actions;
    {
      const MutexLock lock(mutex_);
      take_local_messages();
      take_commands();
      look_at_clock();
      actions = std::exchange(actions_, {});
      next = members_.next_time();
      if (const std::optional<TimePoint> deadline = transfers_.next_deadline(); deadline) {
        next = next ? std::min(*next, *deadline) : deadline;
      }
      changed_.notify_all();
    }
    if (actions.empty()) {
      return next;
    }
    for (const auto& action : actions) {
      std::visit([this](const auto& each) { act(each); }, action);
    }
  }
  server_->wake();
  return next;
}

ConnectionId LeaderThread::accepted(const RankPeer& peer, std::optional<std::uint32_t> user) {
  const RankNonce nonce = make_nonce();
  const MutexLock lock(mutex_);
  const ConnectionId connection{next_connection_++};
  members_.accepted(connection, peer, nonce, options_.clock->now());
  if (user && *user != ::geteuid()) {
    members_.refuse(connection,
                    str_cat("the rank's process belongs to user ", *user, ", the leader to user ", ::geteuid()));
  }
  take_events();
  return connection;
}

bool LeaderThread::received(ConnectionId connection, const RankDecoder::Received& message) {
  const MutexLock lock(mutex_);
  take_message(connection, message.generation, message.message);
  return members_.is_proven(connection);
}

void LeaderThread::broken(ConnectionId connection, const Error& error) {
  const MutexLock lock(mutex_);
  if (error.code == ErrorCode::kCorrupt) {
    members_.refuse(connection, error.message);
  } else {
    members_.closed(connection, error.message);
  }
  take_events();
}

void LeaderThread::ended(ConnectionId connection) {
  const MutexLock lock(mutex_);
  members_.ended(connection);
  take_events();
}

void LeaderThread::take_local_messages() {
  for (const LocalMessage& local : std::exchange(local_messages_, {})) {
    if (local.message) {
      take_message(local.connection, local.generation, *local.message);
    } else {
      members_.ended(local.connection);
      take_events();
      local_ranks_.erase(local.connection);
    }
  }
}

void LeaderThread::take_message(ConnectionId connection, std::uint32_t generation, const RankMessage& message) {
  const std::optional<LeaderMembers::From> from =
      members_.received(connection, generation, message, options_.clock->now());
  if (from) {
    Status taken;
    if (const auto* outcome = std::get_if<RankTransferOutcome>(&message)) {
      const Result<LeaderTransfers::Needless> needless = transfers_.answered(from->rank, from->generation, *outcome);
      if (needless) {
        cancel_on_ranks(*needless);
      } else {
        taken = Unexpected(needless.error());
      }
    } else {
      taken = transfers_.settled(from->rank, from->generation, std::get<RankSettled>(message).id);
    }
    if (!taken) {
      members_.refuse(connection, taken.error().message);
    }
  }
  take_events();
}

void LeaderThread::take_commands() {
  for (Command& command : std::exchange(commands_, {})) {
    std::visit([this](auto& each) CAIRN_REQUIRES(mutex_) { carry_out(each); }, command);
    take_events();
  }
  switch (std::exchange(end_, End::kNotYet)) {
    case End::kNotYet:
      break;
    case End::kCancelAll:
      cancel_on_ranks(transfers_.all_cancelled());
      break;
    case End::kGiveUp:
      cancel_on_ranks(transfers_.all_cancelled());  // if this thread was too late for kCancelAll
      give_up_transfers();
      break;
  }
  take_events();
}

void LeaderThread::carry_out(SubmitCommand& command) {
  std::optional<RankTransfer> transfer =
      transfers_.begin(std::move(command.transfer), members_.presence(), options_.clock->now());
  if (!transfer) {
    return;
  }
  if (!transfers_.is_dealt(transfer->id)) {
    send_to_all(*std::move(transfer));
    return;
  }
  for (std::uint32_t rank = 0; rank < options_.ranks.count(); ++rank) {
    if (std::optional<RankTransfer> part = transfers_.part_of(*transfer, rank); part) {
      send_to(rank, std::make_shared<const RankMessage>(*std::move(part)));
    }
  }
}

void LeaderThread::carry_out(const CancelCommand& command) { cancel_on_ranks(transfers_.cancelled(command.transfer)); }

void LeaderThread::give_up_transfers() {
  std::vector<ConnectionId> busy;
  for (std::uint32_t rank = 0; rank < options_.ranks.count(); ++rank) {
    if (const std::optional<ConnectionId> connection = members_.connection_of(rank);
        connection && transfers_.in_flight(rank) > 0) {
      busy.push_back(*connection);
    }
  }
  transfers_.give_up("the leader ended before the ranks had answered");
  for (const ConnectionId connection : busy) {
    members_.refuse(
        connection,
        "the leader ended while this rank still had transfers in flight; connect again when they have ended");
  }
}

void LeaderThread::look_at_clock() {
  const TimePoint now = options_.clock->now();
  members_.tick(now);
  take_events();
  cancel_on_ranks(transfers_.expired(now));
}

void LeaderThread::cancel_on_ranks(const LeaderTransfers::Needless& needless) {
  for (const TransferId id : needless) {
    send_to_all(RankCancel{id});
  }
}

void LeaderThread::send_to_all(RankMessage message) {
  const auto shared = std::make_shared<const RankMessage>(std::move(message));
  for (std::uint32_t rank = 0; rank < options_.ranks.count(); ++rank) {
    send_to(rank, shared);
  }
}

// If it is ready.
void LeaderThread::send_to(std::uint32_t rank, std::shared_ptr<const RankMessage> message) {
  if (const std::optional<ConnectionId> connection = members_.connection_of(rank); connection) {
    actions_.emplace_back(Outgoing{*connection, members_.generation_of(rank), std::move(message)});
  }
}

void LeaderThread::take_events() {
  for (MemberEvent& event : members_.take_events()) {
    std::visit([this](auto& each) CAIRN_REQUIRES(mutex_) { take_event(each); }, event);
  }
}

void LeaderThread::take_event(MemberSend& event) {
  actions_.emplace_back(
      Outgoing{event.connection, event.generation, std::make_shared<const RankMessage>(std::move(event.message))});
}

void LeaderThread::take_event(const MemberReady& event) {
  transfers_.next_epoch();
  actions_.emplace_back(
      RankChange{.rank = event.rank, .generation = event.generation, .is_reserved = event.is_reserved});
}

void LeaderThread::take_event(const MemberGone& event) {
  cancel_on_ranks(transfers_.gone(event.rank, event.generation, event.reason));
  actions_.emplace_back(
      RankChange{.rank = event.rank, .generation = event.generation, .is_there = false, .reason = event.reason});
}

void LeaderThread::take_event(const MemberSettled& event) { transfers_.over(event.rank, event.generation); }

// --- without the lock ---

void LeaderThread::act(const Outgoing& action) {
  std::shared_ptr<const LocalLeader::Deliver> deliver;
  {
    const MutexLock lock(mutex_);
    if (const auto found = local_ranks_.find(action.connection);
        found != local_ranks_.end() && found->second.deliver != nullptr) {
      deliver = found->second.deliver;
      delivering_ = action.connection;
    }
  }
  if (deliver == nullptr) {
    server_->send(action.connection, action.generation, *action.message);
    return;
  }
  (*deliver)(action.generation, *action.message);
  const MutexLock lock(mutex_);
  delivering_.reset();
  changed_.notify_all();
}

void LeaderThread::act(const RankChange& action) {
  bool is_left = false;
  {
    const MutexLock lock(mutex_);
    is_left = is_left_;
  }
  if (options_.on_change && !is_left) {
    options_.on_change(action);
  }
}

}  // namespace cairn
