// LeaderMembers: which ranks are there: the handshake with each, generations, heartbeats, and whose transfers are proven
// over.
//
// It is told what happens on connections (sockets, or ranks of this process) and returns what follows (take_events()), in
// order. It calls nobody.
//   - While a rank is heard, another peer that claims to be the same rank is refused, and told which process is the rank.
//     If the same process connects again, its first connection ends.
//   - The transfers of a generation are proven over when its process is dead or its port destroyed, or when the same process
//     is ready again. Over TCP, where processes are unknown, ready again is enough.
//   - Limits: hello within kHelloLimit, or Options::silence if that is shorter; ready within kReadyLimit of the welcome,
//     because memory is allocated meanwhile. Then pings: silence counts from the first ping that nothing followed, so a
//     leader that slept does not blame its ranks.
//
// Thread safety: one thread at a time, under the leader's lock. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/leader/leader_transfers.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

// Names a connection of a leader; never used again.
enum class ConnectionId : std::uint64_t {};

// --- what follows from what happened ---
struct MemberSend {
  ConnectionId connection{};
  std::uint32_t generation = 0;
  RankMessage message;
};
struct MemberHangUp {  // after what was sent to it before
  ConnectionId connection{};
};
struct MemberReady {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
};
struct MemberGone {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
  std::string reason;
};
struct MemberSettled {  // no transfer of that generation touches any block
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
};
struct MemberForget {  // the end of this connection's process does not matter any more
  ConnectionId connection{};
};
using MemberEvent = std::variant<MemberSend, MemberHangUp, MemberReady, MemberGone, MemberSettled, MemberForget>;

// The other end of a connection.
struct RankPeer {
  bool is_local = false;      // a rank of this process
  std::uint64_t process = 0;  // 0 if unknown
};

class LeaderMembers {
 public:
  static constexpr Duration kReadyLimit = std::chrono::minutes(10);
  static constexpr Duration kHelloLimit = std::chrono::seconds(2);
  // Connections that have not proven that they know the secret. The next one replaces the oldest, so that strangers cannot
  // keep ranks out. Ranks that have proven it do not count.
  static constexpr std::size_t kMaxStrangers = 64;

  struct Options {
    LeaderId leader = {};
    std::uint32_t ranks = 1;
    std::string secret = {};
    Duration heartbeat = {};
    Duration silence = {};
  };
  explicit LeaderMembers(Options options);

  // Welcomes ranks from now on.
  void open(std::string config, TimePoint now);

  // --- what happens on connections ---
  [[nodiscard]] Status join(ConnectionId connection, std::uint32_t rank, TimePoint now);  // of this process
  // A peer connected; it gets a challenge with this new nonce.
  void accepted(ConnectionId connection, const RankPeer& peer, const RankNonce& nonce, TimePoint now);
  // Returns the sender if the message is one of a ready rank that the caller has to handle.
  struct From {
    std::uint32_t rank = 0;
    std::uint32_t generation = 0;
  };
  [[nodiscard]] std::optional<From> received(ConnectionId connection, std::uint32_t generation,
                                             const RankMessage& message, TimePoint now);
  // The peer hung up; the peer broke the protocol.
  void closed(ConnectionId connection, const std::string& reason);
  void refuse(ConnectionId connection, const std::string& reason);
  // Its process is dead, or its port destroyed: its transfers are over.
  void ended(ConnectionId connection);
  void tick(TimePoint now);

  [[nodiscard]] std::vector<MemberEvent> take_events() { return std::exchange(events_, {}); }

  // --- who is there ---
  [[nodiscard]] std::vector<RankPresence> presence() const;
  [[nodiscard]] std::optional<ConnectionId> connection_of(std::uint32_t rank) const;  // if it is ready
  // Whether the peer has proven that it knows the secret.
  [[nodiscard]] bool is_proven(ConnectionId connection) const;
  [[nodiscard]] RankPeer peer_of(std::uint32_t rank) const;
  [[nodiscard]] std::uint64_t block_bytes(std::uint32_t rank) const { return seats_[rank].block_bytes; }
  [[nodiscard]] bool all_ready() const;
  // When tick() has something to do.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  enum class Phase : std::uint8_t { kChallenged, kKnown, kWelcomed, kReady };
  struct Member {  // a connection that has not ended
    RankPeer peer;
    Phase phase = Phase::kKnown;
    std::uint32_t rank = 0;        // from kKnown on
    std::uint32_t generation = 0;  // from kWelcomed on
    RankNonce nonce = {};          // the leader's
    RankHello hello = {};          // from kKnown on; empty for ranks of this process
    TimePoint since{};             // when its phase began
    TimePoint pinged{};
    std::optional<TimePoint> unanswered = {};  // the first ping since its last message
  };
  struct Former {  // a generation whose transfers may not be over
    ConnectionId connection{};
    std::uint32_t generation = 0;
    RankPeer peer;
  };
  struct Seat {  // one for each rank
    std::optional<ConnectionId> connection = {};
    std::uint32_t generation = 0;
    std::uint64_t block_bytes = 0;
    std::string reason = "it has not connected yet";
    std::vector<Former> formers = {};
  };

  [[nodiscard]] Status seat(ConnectionId connection, Member& member);
  [[nodiscard]] Status check_hello(const Member& member, const RankHello& hello) const;
  void take_hello(ConnectionId connection, Member& member, const RankHello& hello, TimePoint now);
  void welcome(ConnectionId connection, Member& member, TimePoint now);
  void ready(Member& member, const RankReady& message, TimePoint now);
  void make_room_for_stranger();
  void leave(ConnectionId connection, const std::string& reason);
  [[nodiscard]] std::optional<TimePoint> time_of(const Member& member) const;

  const Options options_;
  const Duration hello_limit_;
  std::optional<std::string> config_;
  std::map<ConnectionId, Member> open_;
  std::vector<Seat> seats_;
  std::vector<MemberEvent> events_;
  std::uint64_t pings_ = 0;
};

}  // namespace cairn
