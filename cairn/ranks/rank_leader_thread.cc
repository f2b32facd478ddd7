#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/ranks/rank_leader.h"
#include "cairn/ranks/rank_proof.h"

// What a leader's own thread does.
namespace cairn {

namespace {

// Ranks of this process that answer at once may go on for so long before it is the sockets' turn.
constexpr int kTurns = 16;

}  // namespace

std::optional<TimePoint> RankLeader::work() {
  std::optional<TimePoint> next;
  for (int turn = 0; turn < kTurns; ++turn) {
    Due due;
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
    for (const auto& each : due) {
      std::visit([this](const auto& one) { carry_out(one); }, each);
    }
  }
  server_->wake();
  return next;
}

RankLink RankLeader::accepted(const RankPeer& peer, std::optional<std::uint32_t> user) {
  const RankNonce nonce = make_nonce();
  const MutexLock lock(mutex_);
  const RankLink link{next_link_++};
  members_.accepted(link, peer, nonce, options_.clock->now());
  if (user && *user != ::geteuid()) {
    members_.refuse(link, str_cat("it is a process of user ", *user, " and the leader of user ", ::geteuid()));
  }
  take_events();
  return link;
}

bool RankLeader::received(RankLink link, const RankDecoder::Received& message) {
  const MutexLock lock(mutex_);
  take_message(link, message.generation, message.message);
  return members_.is_proven(link);
}

void RankLeader::broken(RankLink link, const Error& error) {
  const MutexLock lock(mutex_);
  if (error.code == ErrorCode::kCorrupt) {
    members_.refuse(link, error.message);
  } else {
    members_.closed(link, error.message);
  }
  take_events();
}

void RankLeader::ended(RankLink link) {
  const MutexLock lock(mutex_);
  members_.ended(link);
  take_events();
}

void RankLeader::take_heard() {
  for (const Heard& heard : std::exchange(heard_, {})) {
    if (heard.message) {
      take_message(heard.link, heard.generation, *heard.message);
    } else {
      members_.ended(heard.link);
      take_events();
      local_.erase(heard.link);
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
  switch (std::exchange(end_, End::kNotYet)) {
    case End::kNotYet:
      break;
    case End::kCancelAll:
      cancel_on_ranks(copies_.all_cancelled());
      break;
    case End::kGiveUp:
      give_up_copies();
      break;
  }
  take_events();
}

void RankLeader::do_asked(AskedCopy& asked) {
  std::optional<RankCopy> copy = copies_.begin(std::move(asked.transfer), members_.presence(), options_.clock->now());
  if (copy) {
    send_to_all(*std::move(copy));
  }
}

void RankLeader::do_asked(const AskedCancel& asked) { cancel_on_ranks(copies_.cancelled(asked.transfer)); }

void RankLeader::give_up_copies() {
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
      due_.emplace_back(Outgoing{*link, presence[rank].generation, shared});
    }
  }
}

void RankLeader::take_events() {
  for (RankEvent& event : members_.take_events()) {
    std::visit([this](auto& each) CAIRN_REQUIRES(mutex_) { take_event(each); }, event);
  }
}

void RankLeader::take_event(RankSend& event) {
  due_.emplace_back(
      Outgoing{event.link, event.generation, std::make_shared<const RankMessage>(std::move(event.message))});
}

void RankLeader::take_event(const RankHangUp& event) { due_.emplace_back(event); }

void RankLeader::take_event(const RankIsReady& event) {
  copies_.next_epoch();
  due_.emplace_back(RankChange{.rank = event.rank, .generation = event.generation});
}

void RankLeader::take_event(const RankIsGone& event) {
  cancel_on_ranks(copies_.gone(event.rank, event.generation, event.reason));
  due_.emplace_back(
      RankChange{.rank = event.rank, .generation = event.generation, .is_there = false, .reason = event.reason});
}

void RankLeader::take_event(const RankIsOver& event) { copies_.over(event.rank, event.generation); }

void RankLeader::take_event(const RankForget& event) { due_.emplace_back(event); }

void RankLeader::carry_out(const Outgoing& due) {
  std::shared_ptr<const RankGroup::Deliver> deliver;
  {
    const MutexLock lock(mutex_);
    if (const auto found = local_.find(due.link); found != local_.end() && found->second.deliver != nullptr) {
      deliver = found->second.deliver;
      delivering_ = due.link;
    }
  }
  if (deliver == nullptr) {
    server_->send(due.link, due.generation, *due.message);
    return;
  }
  (*deliver)(due.generation, *due.message);
  const MutexLock lock(mutex_);
  delivering_.reset();
  changed_.notify_all();
}

void RankLeader::carry_out(const RankChange& due) {
  bool is_left = false;
  {
    const MutexLock lock(mutex_);
    is_left = is_left_;
  }
  if (options_.told && !is_left) {
    options_.told(due);
  }
}

}  // namespace cairn
