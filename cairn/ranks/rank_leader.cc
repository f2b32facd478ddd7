#include "cairn/ranks/rank_leader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// On the machine's clock, whatever the group's: a thread waits.
std::chrono::steady_clock::time_point real_time_in(Duration longest) {
  const auto now = std::chrono::steady_clock::now();
  constexpr auto kLatest = std::chrono::steady_clock::time_point::max();
  return longest < kLatest - now ? now + longest : kLatest;
}

}  // namespace

RankLeader::RankLeader(RankGroup::Options options, std::unique_ptr<RankServer> server)
    : options_(std::move(options)),
      members_({.ranks = options_.ranks,
                .secret = options_.secret,
                .heartbeat = options_.heartbeat,
                .silence = options_.silence}),
      server_(std::move(server)) {}

RankLeader::~RankLeader() { stop(); }

void RankLeader::start() { server_->start(*this); }

void RankLeader::stop() {
  {
    const MutexLock lock(mutex_);
    CAIRN_CHECK(!has_executor_, "a group of ranks outlives its executor");
  }
  server_->stop();
}

void RankLeader::open(const ManagerConfig& config) {
  {
    const MutexLock lock(mutex_);
    shutdown_ = config.shutdown;
    members_.open(config.to_toml(), options_.clock->now());
  }
  server_->wake();
}

void RankLeader::not_before(std::span<const SlotId> device_blocks, StepMark mark) {
  const MutexLock lock(mutex_);
  for (const SlotId block : device_blocks) {
    if (index_of(block) >= marks_.size()) {
      marks_.resize(std::max<std::size_t>(std::size_t{index_of(block)} + 1, marks_.size() * 2));
    }
    marks_[index_of(block)] = std::max(marks_[index_of(block)], mark);
  }
}

StepMark RankLeader::mark_of(const Transfer& transfer) const {
  const std::optional<RankRoute> route = route_of(*transfer.plan);
  StepMark latest;
  for (const TransferBlock& block : transfer.blocks) {
    for (const auto& [level, slot] : {std::pair{route->from, block.pair.source}, {route->to, block.pair.destination}}) {
      if (level == CacheLevel::kG1 && slot < marks_.size()) {
        latest = std::max(latest, marks_[slot]);
      }
    }
  }
  return latest;
}

void RankLeader::tell(const RankNotice& notice) {
  {
    const MutexLock lock(mutex_);
    asked_.emplace_back(notice);
  }
  server_->wake();
}

Result<RankLink> RankLeader::join(std::uint32_t rank, RankGroup::Deliver deliver) {
  RankLink link{};
  {
    const MutexLock lock(mutex_);
    link = RankLink{next_link_++};
    if (Status joined = members_.join(link, rank, options_.clock->now()); !joined) {
      return Unexpected(joined.error());
    }
    local_.emplace(link, std::make_shared<const RankGroup::Deliver>(std::move(deliver)));
  }
  server_->wake();
  return link;
}

void RankLeader::send(RankLink link, std::uint32_t generation, const RankMessage& message) {
  {
    const MutexLock lock(mutex_);
    heard_.push_back({link, generation, message});
  }
  server_->wake();
}

void RankLeader::leave(RankLink link) {
  {
    const MutexLock lock(mutex_);
    local_.erase(link);
    heard_.push_back({link});
  }
  server_->wake();
  if (server_->is_own_thread()) {
    return;
  }
  const MutexLock lock(mutex_);
  while (delivering_ == link) {
    changed_.wait(mutex_);
  }
}

std::vector<RankStatus> RankLeader::status() const {
  const MutexLock lock(mutex_);
  std::vector<RankStatus> all;
  all.reserve(options_.ranks);
  for (const RankPresence& presence : members_.presence()) {
    const auto rank = static_cast<std::uint32_t>(all.size());
    all.push_back({.is_there = presence.is_there,
                   .generation = presence.generation,
                   .process = members_.peer_of(rank).process,
                   .block_bytes = members_.block_bytes(rank),
                   .copies = copies_.in_hand(rank),
                   .reason = presence.reason});
  }
  return all;
}

Status RankLeader::wait_for_ranks(Duration longest) const {
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
      return fail(ErrorCode::kExpired, str_cat("not all ", options_.ranks, " ranks are ready: ", missing));
    }
  }
  return {};
}

// --- the executor's ---

void RankLeader::take_executor() {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(!has_executor_, "a group of ranks has one executor at a time");
  has_executor_ = true;
}

// Accepted and put down under one lock: the ledger's order is that in which ranks are asked, notices among them.
Result<TransferId> RankLeader::submit(TransferLedger& ledger, Transfer&& transfer) {
  Result<TransferId> id = fail(ErrorCode::kInvalidArgument, "");
  {
    const MutexLock lock(mutex_);
    const StepMark mark = transfer.plan != nullptr ? mark_of(transfer) : StepMark();
    id = ledger.accept(std::move(transfer));
    if (!id) {
      return id;
    }
    if (std::shared_ptr<ActiveTransfer> active = ledger.try_take(); active != nullptr) {
      asked_.emplace_back(AskedCopy{std::move(active), mark});
    }
  }
  server_->wake();
  return id;
}

void RankLeader::cancel(TransferLedger& ledger, TransferId transfer) {
  {
    const MutexLock lock(mutex_);
    ledger.cancel(transfer);
    asked_.emplace_back(AskedCancel{transfer});
  }
  server_->wake();
}

bool RankLeader::has_no_copies() const {
  const auto is_copy = [](const Asked& asked) { return std::holds_alternative<AskedCopy>(asked); };
  return copies_.empty() && std::none_of(asked_.begin(), asked_.end(), is_copy);
}

// To give up on a rank is safe although it may still copy: the bytes are its own, no process frees them here, and it is
// thrown out, so that it comes back only when it has waited for what it does. Until then nobody asks it for anything, and
// no slot that it touches is read.
void RankLeader::end_executor() {
  const auto wait = [this](Duration longest) {
    const auto until = real_time_in(longest);
    const MutexLock lock(mutex_);
    while (!has_no_copies() && changed_.wait_until(mutex_, until) != std::cv_status::timeout) {
    }
    return has_no_copies();
  };
  Duration shutdown{};
  {
    const MutexLock lock(mutex_);
    shutdown = shutdown_;
    asked_.emplace_back(AskedCancelAll{});
  }
  server_->wake();
  if (!wait(shutdown)) {
    {
      const MutexLock lock(mutex_);
      asked_.emplace_back(AskedGiveUp{});
    }
    server_->wake();
    CAIRN_CHECK(wait(Duration::max()), "what was given up on is over");
  }
  const MutexLock lock(mutex_);
  has_executor_ = false;
}

// --- the thread's ---

std::optional<TimePoint> RankLeader::work() {
  while (true) {
    Due due;
    std::optional<TimePoint> next;
    {
      const MutexLock lock(mutex_);
      take_heard();
      take_asked();
      look_at_clock();
      due = std::exchange(due_, {});
      next = members_.next_time();
      if (const std::optional<TimePoint> deadline = copies_.next_deadline(); deadline) {
        next = next ? std::min(*next, *deadline) : deadline;
      }
      changed_.notify_all();
    }
    if (due.empty()) {
      return next;
    }
    for (const Outgoing& outgoing : due.messages) {
      deliver(outgoing);
    }
    for (const RankChange& change : due.changes) {
      if (options_.told) {
        options_.told(change);
      }
    }
  }
}

void RankLeader::take_heard() {
  for (const Heard& heard : std::exchange(heard_, {})) {
    if (heard.message) {
      take_message(heard.link, heard.generation, *heard.message);
    } else {
      members_.ended(heard.link);
      take_events();
    }
  }
}

void RankLeader::take_message(RankLink link, std::uint32_t generation, const RankMessage& message) {
  const std::optional<RankMembers::From> from = members_.received(link, generation, message, options_.clock->now());
  if (from) {
    Status taken;
    if (const auto* answer = std::get_if<RankCopyDone>(&message)) {
      const Result<RankCopies::Needless> needless = copies_.answered(from->rank, from->generation, *answer);
      if (needless) {
        cancel_on_ranks(*needless);
      } else {
        taken = Unexpected(needless.error());
      }
    } else {
      taken = copies_.settled(from->rank, from->generation, std::get<RankSettled>(message).id);
    }
    if (!taken) {
      members_.refuse(link, taken.error().message);
    }
  }
  take_events();
}

void RankLeader::take_asked() {
  for (Asked& asked : std::exchange(asked_, {})) {
    std::visit([this](auto& each) CAIRN_REQUIRES(mutex_) { do_asked(each); }, asked);
    take_events();
  }
}

void RankLeader::do_asked(AskedCopy& asked) {
  std::optional<RankCopy> copy =
      copies_.begin(std::move(asked.transfer), asked.not_before, members_.presence(), options_.clock->now());
  if (copy) {
    send_to_all(*std::move(copy));
  }
}

void RankLeader::do_asked(const AskedCancel& asked) { cancel_on_ranks(copies_.cancelled(asked.transfer)); }

void RankLeader::do_asked(const AskedCancelAll& /*asked*/) { cancel_on_ranks(copies_.all_cancelled()); }

void RankLeader::do_asked(const AskedGiveUp& /*asked*/) {
  std::vector<RankLink> busy;
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    if (const std::optional<RankLink> link = members_.link_of(rank); link && copies_.in_hand(rank) > 0) {
      busy.push_back(*link);
    }
  }
  copies_.give_up("the leader ended before the ranks had answered");
  for (const RankLink link : busy) {
    members_.refuse(link, "the leader ended and it still had copies in hand; connect again when they are over");
  }
}

void RankLeader::do_asked(const RankNotice& asked) { send_to_all(asked); }

void RankLeader::look_at_clock() {
  const TimePoint now = options_.clock->now();
  members_.tick(now);
  take_events();
  cancel_on_ranks(copies_.expired(now));
}

void RankLeader::cancel_on_ranks(const RankCopies::Needless& needless) {
  for (const TransferId id : needless) {
    send_to_all(RankCancel{id});
  }
}

void RankLeader::send_to_all(RankMessage message) {
  const auto shared = std::make_shared<const RankMessage>(std::move(message));
  const std::vector<RankPresence> presence = members_.presence();
  for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
    if (const std::optional<RankLink> link = members_.link_of(rank); link) {
      due_.messages.push_back({*link, presence[rank].generation, shared});
    }
  }
}

void RankLeader::take_events() {
  for (RankEvent& event : members_.take_events()) {
    std::visit([this](auto& each) CAIRN_REQUIRES(mutex_) { take_event(each); }, event);
  }
}

void RankLeader::take_event(RankSend& event) {
  due_.messages.push_back(
      {event.link, event.generation, std::make_shared<const RankMessage>(std::move(event.message))});
}

void RankLeader::take_event(const RankHangUp& /*event*/) {}

void RankLeader::take_event(const RankIsReady& event) {
  copies_.next_epoch();
  due_.changes.push_back({.rank = event.rank, .generation = event.generation});
}

void RankLeader::take_event(const RankIsGone& event) {
  cancel_on_ranks(copies_.gone(event.rank, event.generation, event.reason));
  due_.changes.push_back(
      {.rank = event.rank, .generation = event.generation, .is_there = false, .reason = event.reason});
}

void RankLeader::take_event(const RankIsOver& event) { copies_.over(event.rank, event.generation); }

void RankLeader::take_event(const RankForget& /*event*/) {}

void RankLeader::deliver(const Outgoing& outgoing) {
  std::shared_ptr<const RankGroup::Deliver> deliver;
  {
    const MutexLock lock(mutex_);
    const auto found = local_.find(outgoing.link);
    if (found == local_.end()) {
      return;
    }
    deliver = found->second;
    delivering_ = outgoing.link;
  }
  (*deliver)(outgoing.generation, *outgoing.message);
  const MutexLock lock(mutex_);
  delivering_.reset();
  changed_.notify_all();
}

}  // namespace cairn
