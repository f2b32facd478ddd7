#include "cairn/leader/leader_members.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/wire/rank_proof.h"

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

LeaderMembers::LeaderMembers(Options options)
    : options_(std::move(options)), hello_limit_(std::min(options_.silence, kHelloLimit)), seats_(options_.ranks) {}

void LeaderMembers::open(std::string config, TimePoint now) {
  config_ = std::move(config);
  for (auto& [connection, member] : open_) {
    if (member.phase == Phase::kKnown) {
      welcome(connection, member, now);
    }
  }
}

// Gives the rank's seat to this connection, or says which process has it.
Status LeaderMembers::seat(ConnectionId connection, Member& member) {
  if (member.rank >= options_.ranks) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there are ", options_.ranks, " ranks, 0 to ", options_.ranks - 1,
                                                     ", and no rank ", member.rank));
  }
  Seat& seat = seats_[member.rank];
  if (seat.connection) {
    const RankPeer& other = open_.at(*seat.connection).peer;
    if (other.process == 0 || other.process != member.peer.process) {
      return fail(ErrorCode::kAlreadyExists, str_cat("rank ", member.rank, " is there already, in ", name_of(other),
                                                     "; end that process, or wait until the leader gives it up"));
    }
    leave(*seat.connection, "its process connected again");
  }
  seat.connection = connection;
  seat.reason = "it is not ready yet";
  return {};
}

Status LeaderMembers::join(ConnectionId connection, std::uint32_t rank, TimePoint now) {
  Member member{.peer = {.is_local = true}, .rank = rank, .since = now};
  CAIRN_TRY(seat(connection, member));
  Member& kept = open_.emplace(connection, member).first->second;
  if (config_) {
    welcome(connection, kept, now);
  }
  return {};
}

void LeaderMembers::accepted(ConnectionId connection, const RankPeer& peer, const RankNonce& nonce, TimePoint now) {
  make_room_for_stranger();
  open_.emplace(connection, Member{.peer = peer, .phase = Phase::kChallenged, .nonce = nonce, .since = now});
  events_.emplace_back(MemberSend{connection, 0, RankChallenge{nonce}});
}

void LeaderMembers::make_room_for_stranger() {
  const auto is_stranger = [](const auto& each) { return each.second.phase == Phase::kChallenged; };
  if (std::count_if(open_.begin(), open_.end(), is_stranger) < std::ptrdiff_t{kMaxStrangers}) {
    return;
  }
  const auto oldest = std::find_if(open_.begin(), open_.end(), is_stranger);  // ids grow with every connection
  refuse(oldest->first, str_cat(kMaxStrangers, " connections have sent no hello, and this is the oldest one"));
}

bool LeaderMembers::is_proven(ConnectionId connection) const {
  const auto found = open_.find(connection);
  return found != open_.end() && found->second.phase != Phase::kChallenged;
}

// The proof first: a stranger learns nothing else.
Status LeaderMembers::check_hello(const Member& member, const RankHello& hello) const {
  if (!cairn::is_proven(hello, member.nonce, options_.secret)) {
    return fail(ErrorCode::kInvalidArgument, "it does not know the leader's secret");
  }
  if (hello.ranks != options_.ranks) {
    return fail(ErrorCode::kInvalidArgument, str_cat("it is one of ", hello.ranks, " ranks and the leader has ",
                                                     options_.ranks, "; give both the same number"));
  }
  return {};
}

void LeaderMembers::take_hello(ConnectionId connection, Member& member, const RankHello& hello, TimePoint now) {
  if (const Status fits = check_hello(member, hello); !fits) {
    refuse(connection, fits.error().message);
    return;
  }
  member.rank = hello.rank;
  member.hello = hello;
  if (const Status seated = seat(connection, member); !seated) {
    refuse(connection, seated.error().message);
    return;
  }
  member.phase = Phase::kKnown;
  member.since = now;
  if (config_) {
    welcome(connection, member, now);
  }
}

void LeaderMembers::welcome(ConnectionId connection, Member& member, TimePoint now) {
  Seat& seat = seats_[member.rank];
  member.generation = ++seat.generation;
  member.phase = Phase::kWelcomed;
  member.since = now;
  RankWelcome message{
      .leader = options_.leader, .generation = member.generation, .heartbeat = options_.heartbeat, .config = *config_};
  if (!member.peer.is_local) {
    message.proof = proof_of(message, member.hello, member.nonce, options_.secret);
  }
  events_.emplace_back(MemberSend{connection, member.generation, std::move(message)});
}

void LeaderMembers::ready(Member& member, const RankReady& message, TimePoint now) {
  Seat& seat = seats_[member.rank];
  member.phase = Phase::kReady;
  member.since = member.pinged = now;
  seat.block_bytes = message.block_bytes;
  seat.reason.clear();
  // It has waited for the transfers of its own process. It knows nothing of another process that may still live.
  std::erase_if(seat.formers, [&](const Former& former) {
    const bool is_another = former.peer.process != 0 && former.peer.process != member.peer.process;
    if (former.peer.is_local || is_another) {
      return false;
    }
    events_.emplace_back(MemberSettled{member.rank, former.generation});
    events_.emplace_back(MemberForget{former.connection});
    return true;
  });
  events_.emplace_back(MemberReady{member.rank, member.generation});
}

std::optional<LeaderMembers::From> LeaderMembers::received(ConnectionId connection, std::uint32_t generation,
                                                           const RankMessage& message, TimePoint now) {
  const auto found = open_.find(connection);
  if (found == open_.end()) {
    return std::nullopt;
  }
  Member& member = found->second;
  if (generation != member.generation) {
    return std::nullopt;  // of an earlier connection
  }
  if (const auto* refusal = std::get_if<RankRefusal>(&message)) {
    closed(connection, str_cat("it refused: ", refusal->reason));
    return std::nullopt;
  }
  if (member.phase == Phase::kChallenged && std::holds_alternative<RankHello>(message)) {
    take_hello(connection, member, std::get<RankHello>(message), now);
    return std::nullopt;
  }
  if (member.phase == Phase::kWelcomed && std::holds_alternative<RankReady>(message)) {
    ready(member, std::get<RankReady>(message), now);
    return std::nullopt;
  }
  if (member.phase == Phase::kReady) {
    member.unanswered.reset();
    if (std::holds_alternative<RankPong>(message)) {
      return std::nullopt;
    }
    if (std::holds_alternative<RankTransferOutcome>(message) || std::holds_alternative<RankSettled>(message)) {
      return From{member.rank, member.generation};
    }
  }
  refuse(connection, "it sent a message that is not its turn");
  return std::nullopt;
}

// Ends the connection. Its transfers may not be over.
void LeaderMembers::leave(ConnectionId connection, const std::string& reason) {
  const Member member = open_.at(connection);
  open_.erase(connection);
  events_.emplace_back(MemberHangUp{connection});
  const bool was_ready = member.phase == Phase::kReady;
  if (member.phase != Phase::kChallenged) {
    Seat& seat = seats_[member.rank];
    seat.connection.reset();
    seat.reason = reason;
    if (was_ready) {
      seat.formers.push_back({.connection = connection, .generation = member.generation, .peer = member.peer});
      events_.emplace_back(MemberGone{member.rank, member.generation, reason});
    }
  }
  if (!was_ready) {
    events_.emplace_back(MemberForget{connection});
  }
}

void LeaderMembers::closed(ConnectionId connection, const std::string& reason) {
  if (open_.contains(connection)) {
    leave(connection, reason);
  }
}

void LeaderMembers::refuse(ConnectionId connection, const std::string& reason) {
  const auto found = open_.find(connection);
  if (found != open_.end()) {
    events_.emplace_back(MemberSend{connection, found->second.generation, RankRefusal{reason}});
    leave(connection, reason);
  }
}

void LeaderMembers::ended(ConnectionId connection) {
  closed(connection, "its process has ended");
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    std::erase_if(seats_[rank].formers, [&](const Former& former) {
      if (former.connection != connection) {
        return false;
      }
      events_.emplace_back(MemberSettled{rank, former.generation});
      events_.emplace_back(MemberForget{connection});
      return true;
    });
  }
}

std::optional<TimePoint> LeaderMembers::time_of(const Member& member) const {
  switch (member.phase) {
    case Phase::kChallenged:
      return member.since + hello_limit_;
    case Phase::kKnown:
      return std::nullopt;
    case Phase::kWelcomed:
      return member.since + kReadyLimit;
    case Phase::kReady:
      break;
  }
  const TimePoint next_ping = member.pinged + options_.heartbeat;
  return member.unanswered ? std::min(*member.unanswered + options_.silence, next_ping) : next_ping;
}

void LeaderMembers::tick(TimePoint now) {
  std::vector<std::pair<ConnectionId, std::string>> silent;
  for (auto& [connection, member] : open_) {
    const std::optional<TimePoint> due = time_of(member);
    if (!due || now < *due) {
      continue;
    }
    if (member.phase != Phase::kReady) {
      silent.emplace_back(connection, member.phase == Phase::kChallenged
                                          ? str_cat("no hello within ", milliseconds_of(hello_limit_))
                                          : str_cat("it was not ready within ", milliseconds_of(kReadyLimit)));
    } else if (member.unanswered && now >= *member.unanswered + options_.silence) {
      silent.emplace_back(connection, str_cat("it said nothing for ", milliseconds_of(now - *member.unanswered)));
    } else {
      member.pinged = now;
      member.unanswered = member.unanswered.value_or(now);
      events_.emplace_back(MemberSend{connection, member.generation, RankPing{.number = ++pings_}});
    }
  }
  for (const auto& [connection, reason] : silent) {
    refuse(connection, reason);
  }
}

std::optional<TimePoint> LeaderMembers::next_time() const {
  std::optional<TimePoint> next;
  for (const auto& [connection, member] : open_) {
    const std::optional<TimePoint> due = time_of(member);
    if (due && (!next || *due < *next)) {
      next = due;
    }
  }
  return next;
}

std::vector<RankPresence> LeaderMembers::presence() const {
  std::vector<RankPresence> all;
  all.reserve(seats_.size());
  for (const Seat& seat : seats_) {
    all.push_back({.is_there = seat.connection && open_.at(*seat.connection).phase == Phase::kReady,
                   .generation = seat.generation,
                   .reason = seat.reason});
  }
  return all;
}

std::optional<ConnectionId> LeaderMembers::connection_of(std::uint32_t rank) const {
  const std::optional<ConnectionId>& connection = seats_[rank].connection;
  return connection && open_.at(*connection).phase == Phase::kReady ? connection : std::nullopt;
}

RankPeer LeaderMembers::peer_of(std::uint32_t rank) const {
  const std::optional<ConnectionId>& connection = seats_[rank].connection;
  return connection ? open_.at(*connection).peer : RankPeer{};
}

bool LeaderMembers::all_ready() const {
  return std::all_of(seats_.begin(), seats_.end(), [this](const Seat& seat) {
    return seat.connection && open_.at(*seat.connection).phase == Phase::kReady;
  });
}

}  // namespace cairn
