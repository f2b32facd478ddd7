// RankMembers: which ranks are there: the talk with each from its first word, generations, heartbeats, and whose copies
// are proven over.
//
// Does:     is told what happens on links (a socket's connection, or a rank of this process), says what follows from it
//           (take_events()), in order. Calls nobody.
// Twice:    of one rank the first is kept as long as it is heard: another is refused, and told which process has the
//           place. The same process that connects again has given its first connection up.
// Proven:   what a generation had in hand is over when its process is dead, or its port destroyed; or when the rank is
//           ready again and is the same process. Over TCP, where processes are not known, ready again is enough.
// Limits:   hello within kHelloLimit, or Options::silence if that is shorter; ready within kReadyLimit of the welcome: memory is made meanwhile, which takes
//           its time, and nobody asks whether it is still there but its connection. Then pings: silence counts from the
//           first that nothing followed, so that a leader that slept does not blame its ranks.
// Threads:  one at a time: under the leader's lock. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/ranks/rank_copies.h"
#include "cairn/ranks/rank_message.h"

namespace cairn {

// One connection; never used again.
enum class RankLink : std::uint64_t {};

// What follows.
struct RankSend {
  RankLink link{};
  std::uint32_t generation = 0;
  RankMessage message;
};
struct RankHangUp {  // after what was sent to it
  RankLink link{};
};
struct RankIsReady {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
};
struct RankIsGone {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
  std::string reason;
};
struct RankIsOver {  // nothing of that generation touches any block
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
};
struct RankForget {  // whether the process of this link lives is of no interest any more
  RankLink link{};
};
using RankEvent = std::variant<RankSend, RankHangUp, RankIsReady, RankIsGone, RankIsOver, RankForget>;

// Who is at the other end of a link.
struct RankPeer {
  bool is_local = false;      // of this process: proven over when its port is destroyed
  std::uint64_t process = 0;  // 0: not known
};

class RankMembers {
 public:
  static constexpr Duration kReadyLimit = std::chrono::minutes(10);
  static constexpr Duration kHelloLimit = std::chrono::seconds(2);
  // Connections that have not proven who they are. The oldest makes room for the next one, so that strangers cannot keep
  // ranks out. Ranks that have proven it do not count: each has a place of its own.
  static constexpr std::size_t kMaxStrangers = 64;

  struct Options {
    LeaderId leader = {};
    std::uint32_t ranks = 1;
    std::string secret = {};
    Duration heartbeat = {};
    Duration silence = {};
  };
  explicit RankMembers(Options options);

  // From now on ranks are welcomed.
  void open(std::string config, TimePoint now);

  // --- what happens on links ---
  [[nodiscard]] Status join(RankLink link, std::uint32_t rank, TimePoint now);  // of this process
  // Somebody connected, and has to say and prove who it is: `nonce` is new.
  void accepted(RankLink link, const RankPeer& peer, const RankNonce& nonce, TimePoint now);
  // A message of a rank that is ready, and is to be taken; its answers to pings are dealt with here.
  struct From {
    std::uint32_t rank = 0;
    std::uint32_t generation = 0;
  };
  [[nodiscard]] std::optional<From> received(RankLink link, std::uint32_t generation, const RankMessage& message,
                                             TimePoint now);
  // It hung up, or says what it must not.
  void closed(RankLink link, const std::string& reason);
  void refuse(RankLink link, const std::string& reason);
  // Its process is dead, its port destroyed: whatever it had in hand is over.
  void ended(RankLink link);
  void tick(TimePoint now);

  [[nodiscard]] std::vector<RankEvent> take_events() { return std::exchange(events_, {}); }

  // --- who is there ---
  [[nodiscard]] std::vector<RankPresence> presence() const;
  [[nodiscard]] std::optional<RankLink> link_of(std::uint32_t rank) const;  // of one that is ready
  // Whether the link's peer has proven who it is.
  [[nodiscard]] bool is_proven(RankLink link) const;
  [[nodiscard]] RankPeer peer_of(std::uint32_t rank) const;
  [[nodiscard]] std::uint64_t block_bytes(std::uint32_t rank) const { return seats_[rank].block_bytes; }
  [[nodiscard]] bool all_ready() const;
  // When tick() has something to do.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  enum class Phase : std::uint8_t { kChallenged, kKnown, kWelcomed, kReady };
  struct Talk {
    RankPeer peer;
    Phase phase = Phase::kKnown;
    std::uint32_t rank = 0;        // from kKnown on
    std::uint32_t generation = 0;  // from kWelcomed on
    RankNonce nonce = {};          // ours
    RankHello hello = {};          // from kKnown on, but for those of this process
    TimePoint since{};             // when its phase began
    TimePoint pinged{};
    std::optional<TimePoint> unanswered = {};  // the first ping since it was heard
  };
  struct Former {  // a generation that is not proven over
    RankLink link{};
    std::uint32_t generation = 0;
    RankPeer peer;
  };
  struct Seat {  // one for each rank
    std::optional<RankLink> link = {};
    std::uint32_t generation = 0;
    std::uint64_t block_bytes = 0;
    std::string reason = "it has not connected yet";
    std::vector<Former> formers = {};
  };

  [[nodiscard]] Status seat(RankLink link, Talk& talk);
  [[nodiscard]] Status check_hello(const Talk& talk, const RankHello& hello) const;
  void take_hello(RankLink link, Talk& talk, const RankHello& hello, TimePoint now);
  void welcome(RankLink link, Talk& talk, TimePoint now);
  void ready(Talk& talk, const RankReady& message, TimePoint now);
  void make_room_for_stranger();
  void leave(RankLink link, const std::string& reason);
  [[nodiscard]] std::optional<TimePoint> time_of(const Talk& talk) const;

  const Options options_;
  const Duration hello_limit_;
  std::optional<std::string> config_;
  std::map<RankLink, Talk> talks_;
  std::vector<Seat> seats_;
  std::vector<RankEvent> events_;
  std::uint64_t pings_ = 0;
};

}  // namespace cairn
