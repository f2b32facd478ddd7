#include "cairn/ranks/rank_members.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/ranks/rank_proof.h"

namespace cairn {

namespace {

std::string milliseconds_of(Duration duration) {
  return str_cat(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(), " ms");
}

std::string name_of(const RankPeer& peer) {
  if (peer.is_local) {
    return "this process";
  }
  return peer.process == 0 ? std::string("another machine or process") : str_cat("process ", peer.process);
}

}  // namespace

RankMembers::RankMembers(Options options)
    : options_(std::move(options)), hello_limit_(std::min(options_.silence, kHelloLimit)), seats_(options_.ranks) {}

void RankMembers::open(std::string config, TimePoint now) {
  config_ = std::move(config);
  for (auto& [link, talk] : talks_) {
    if (talk.phase == Phase::kKnown) {
      welcome(link, talk, now);
    }
  }
}

// Gives the rank's place to this link, or says who has it.
Status RankMembers::seat(RankLink link, Talk& talk) {
  if (talk.rank >= options_.ranks) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there are ", options_.ranks, " ranks, 0 to ", options_.ranks - 1,
                                                     ", and no rank ", talk.rank));
  }
  Seat& seat = seats_[talk.rank];
  if (seat.link) {
    const RankPeer& other = talks_.at(*seat.link).peer;
    if (other.process == 0 || other.process != talk.peer.process) {
      return fail(ErrorCode::kAlreadyExists, str_cat("rank ", talk.rank, " is there already, in ", name_of(other),
                                                     "; end that one, or wait until it is given up"));
    }
    leave(*seat.link, "its process connected again");
  }
  seat.link = link;
  seat.reason = "it is not ready yet";
  return {};
}

Status RankMembers::join(RankLink link, std::uint32_t rank, TimePoint now) {
  Talk talk{.peer = {.is_local = true}, .rank = rank, .since = now};
  if (Status taken = seat(link, talk); !taken) {
    return taken;
  }
  Talk& kept = talks_.emplace(link, talk).first->second;
  if (config_) {
    welcome(link, kept, now);
  }
  return {};
}

void RankMembers::accepted(RankLink link, const RankPeer& peer, const RankNonce& nonce, TimePoint now) {
  make_room_for_stranger();
  talks_.emplace(link, Talk{.peer = peer, .phase = Phase::kChallenged, .nonce = nonce, .since = now});
  events_.emplace_back(RankSend{link, 0, RankChallenge{nonce}});
}

void RankMembers::make_room_for_stranger() {
  const auto is_stranger = [](const auto& each) { return each.second.phase == Phase::kChallenged; };
  if (std::count_if(talks_.begin(), talks_.end(), is_stranger) < std::ptrdiff_t{kMaxStrangers}) {
    return;
  }
  const auto oldest = std::find_if(talks_.begin(), talks_.end(), is_stranger);  // links are numbered as they come
  refuse(oldest->first, str_cat(kMaxStrangers, " connections have not said who they are, and this is the oldest"));
}

bool RankMembers::is_proven(RankLink link) const {
  const auto found = talks_.find(link);
  return found != talks_.end() && found->second.phase != Phase::kChallenged;
}

// The proof first: a stranger learns nothing but that it is one.
Status RankMembers::check_hello(const Talk& talk, const RankHello& hello) const {
  if (!cairn::is_proven(hello, talk.nonce, options_.secret)) {
    return fail(ErrorCode::kInvalidArgument, "it does not know the leader's secret");
  }
  if (hello.ranks != options_.ranks) {
    return fail(ErrorCode::kInvalidArgument, str_cat("it is one of ", hello.ranks, " ranks and the leader has ",
                                                     options_.ranks, "; give both the same number"));
  }
  return {};
}

void RankMembers::take_hello(RankLink link, Talk& talk, const RankHello& hello, TimePoint now) {
  if (const Status fits = check_hello(talk, hello); !fits) {
    refuse(link, fits.error().message);
    return;
  }
  talk.rank = hello.rank;
  talk.hello = hello;
  if (const Status seated = seat(link, talk); !seated) {
    refuse(link, seated.error().message);
    return;
  }
  talk.phase = Phase::kKnown;
  talk.since = now;
  if (config_) {
    welcome(link, talk, now);
  }
}

void RankMembers::welcome(RankLink link, Talk& talk, TimePoint now) {
  Seat& seat = seats_[talk.rank];
  talk.generation = ++seat.generation;
  talk.phase = Phase::kWelcomed;
  talk.since = now;
  RankWelcome message{
      .leader = options_.leader, .generation = talk.generation, .heartbeat = options_.heartbeat, .config = *config_};
  if (!talk.peer.is_local) {
    message.proof = proof_of(message, talk.hello, talk.nonce, options_.secret);
  }
  events_.emplace_back(RankSend{link, talk.generation, std::move(message)});
}

void RankMembers::ready(Talk& talk, const RankReady& message, TimePoint now) {
  Seat& seat = seats_[talk.rank];
  talk.phase = Phase::kReady;
  talk.since = talk.pinged = now;
  seat.block_bytes = message.block_bytes;
  seat.reason.clear();
  // It has waited for what its own process had in hand. Of another process that may still live it knows nothing.
  std::erase_if(seat.formers, [&](const Former& former) {
    const bool is_another = former.peer.process != 0 && former.peer.process != talk.peer.process;
    if (former.peer.is_local || is_another) {
      return false;
    }
    events_.emplace_back(RankIsOver{talk.rank, former.generation});
    events_.emplace_back(RankForget{former.link});
    return true;
  });
  events_.emplace_back(RankIsReady{talk.rank, talk.generation});
}

std::optional<RankMembers::From> RankMembers::received(RankLink link, std::uint32_t generation,
                                                       const RankMessage& message, TimePoint now) {
  const auto found = talks_.find(link);
  if (found == talks_.end()) {
    return std::nullopt;
  }
  Talk& talk = found->second;
  if (generation != talk.generation) {
    return std::nullopt;  // of a talk that is over
  }
  if (const auto* refusal = std::get_if<RankRefusal>(&message)) {
    closed(link, str_cat("it says: ", refusal->reason));
    return std::nullopt;
  }
  if (talk.phase == Phase::kChallenged && std::holds_alternative<RankHello>(message)) {
    take_hello(link, talk, std::get<RankHello>(message), now);
    return std::nullopt;
  }
  if (talk.phase == Phase::kWelcomed && std::holds_alternative<RankReady>(message)) {
    ready(talk, std::get<RankReady>(message), now);
    return std::nullopt;
  }
  if (talk.phase == Phase::kReady) {
    talk.unanswered.reset();
    if (std::holds_alternative<RankPong>(message)) {
      return std::nullopt;
    }
    if (std::holds_alternative<RankCopyDone>(message) || std::holds_alternative<RankSettled>(message)) {
      return From{talk.rank, talk.generation};
    }
  }
  refuse(link, "it says what is not its turn to say");
  return std::nullopt;
}

// The talk is over. What was in its hands is not proven to be.
void RankMembers::leave(RankLink link, const std::string& reason) {
  const Talk talk = talks_.at(link);
  talks_.erase(link);
  events_.emplace_back(RankHangUp{link});
  const bool was_ready = talk.phase == Phase::kReady;
  if (talk.phase != Phase::kChallenged) {
    Seat& seat = seats_[talk.rank];
    seat.link.reset();
    seat.reason = reason;
    if (was_ready) {
      seat.formers.push_back({.link = link, .generation = talk.generation, .peer = talk.peer});
      events_.emplace_back(RankIsGone{talk.rank, talk.generation, reason});
    }
  }
  if (!was_ready) {
    events_.emplace_back(RankForget{link});
  }
}

void RankMembers::closed(RankLink link, const std::string& reason) {
  if (talks_.contains(link)) {
    leave(link, reason);
  }
}

void RankMembers::refuse(RankLink link, const std::string& reason) {
  const auto found = talks_.find(link);
  if (found != talks_.end()) {
    events_.emplace_back(RankSend{link, found->second.generation, RankRefusal{reason}});
    leave(link, reason);
  }
}

void RankMembers::ended(RankLink link) {
  closed(link, "its process has ended");
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    std::erase_if(seats_[rank].formers, [&](const Former& former) {
      if (former.link != link) {
        return false;
      }
      events_.emplace_back(RankIsOver{rank, former.generation});
      events_.emplace_back(RankForget{link});
      return true;
    });
  }
}

std::optional<TimePoint> RankMembers::time_of(const Talk& talk) const {
  switch (talk.phase) {
    case Phase::kChallenged:
      return talk.since + hello_limit_;
    case Phase::kKnown:
      return std::nullopt;
    case Phase::kWelcomed:
      return talk.since + kReadyLimit;
    case Phase::kReady:
      break;
  }
  const TimePoint next_ping = talk.pinged + options_.heartbeat;
  return talk.unanswered ? std::min(*talk.unanswered + options_.silence, next_ping) : next_ping;
}

void RankMembers::tick(TimePoint now) {
  std::vector<std::pair<RankLink, std::string>> silent;
  for (auto& [link, talk] : talks_) {
    const std::optional<TimePoint> due = time_of(talk);
    if (!due || now < *due) {
      continue;
    }
    if (talk.phase != Phase::kReady) {
      silent.emplace_back(link, talk.phase == Phase::kChallenged
                                    ? str_cat("it did not say who it is within ", milliseconds_of(hello_limit_))
                                    : str_cat("it was not ready within ", milliseconds_of(kReadyLimit)));
    } else if (talk.unanswered && now >= *talk.unanswered + options_.silence) {
      silent.emplace_back(link, str_cat("it said nothing for ", milliseconds_of(now - *talk.unanswered)));
    } else {
      talk.pinged = now;
      talk.unanswered = talk.unanswered.value_or(now);
      events_.emplace_back(RankSend{link, talk.generation, RankPing{.number = ++pings_}});
    }
  }
  for (const auto& [link, reason] : silent) {
    refuse(link, reason);
  }
}

std::optional<TimePoint> RankMembers::next_time() const {
  std::optional<TimePoint> next;
  for (const auto& [link, talk] : talks_) {
    const std::optional<TimePoint> due = time_of(talk);
    if (due && (!next || *due < *next)) {
      next = due;
    }
  }
  return next;
}

std::vector<RankPresence> RankMembers::presence() const {
  std::vector<RankPresence> all;
  all.reserve(seats_.size());
  for (const Seat& seat : seats_) {
    all.push_back({.is_there = seat.link && talks_.at(*seat.link).phase == Phase::kReady,
                   .generation = seat.generation,
                   .reason = seat.reason});
  }
  return all;
}

std::optional<RankLink> RankMembers::link_of(std::uint32_t rank) const {
  const std::optional<RankLink>& link = seats_[rank].link;
  return link && talks_.at(*link).phase == Phase::kReady ? link : std::nullopt;
}

RankPeer RankMembers::peer_of(std::uint32_t rank) const {
  const std::optional<RankLink>& link = seats_[rank].link;
  return link ? talks_.at(*link).peer : RankPeer{};
}

bool RankMembers::all_ready() const {
  return std::all_of(seats_.begin(), seats_.end(),
                     [this](const Seat& seat) { return seat.link && talks_.at(*seat.link).phase == Phase::kReady; });
}

}  // namespace cairn
