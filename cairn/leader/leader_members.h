// LeaderMembers: which ranks are connected: the handshake with each, generations, heartbeats, and whose transfers are
// known to have ended.
//
// The caller reports what happens on connections (sockets, or ranks of this process) and takes the events that follow
// (take_events()), in order. It calls nothing but Model::make_memory.
//   - While a rank is heard, another peer that claims to be the same rank is refused with an error that names the
//     process of the rank. If the same process connects again, its first connection ends.
//   - The transfers of a generation are known to have ended when its process is dead or its port destroyed, or when the
//     same process is ready again. Over TCP, where processes are unknown, ready again is enough.
//   - Limits: hello within kHelloLimit, or Options::silence if that is shorter; ready within kRankReadyLimit of the welcome,
//     because memory is allocated meanwhile. Then pings: silence counts from the first ping that nothing followed, so a
//     leader that slept does not blame its ranks.
//   - Replicas that share their memory and file: the first of them that is welcomed is the keeper, which makes the file; the
//     others are welcomed once it is ready, and get pings until then, so that they know that the leader has accepted them. If
//     the keeper is gone, the next one that is welcomed takes its place.
//
// Thread safety: one thread at a time, under the leader's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/leader/block_footprint.h"
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
  bool is_reserved = true;  // the space of its file
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
  static constexpr Duration kHelloLimit = std::chrono::seconds(2);
  // Connections that have not proven that they know the secret. The next one replaces the oldest, so that strangers cannot
  // keep ranks out. Ranks that have proven it do not count.
  static constexpr std::size_t kMaxStrangers = 64;

  struct Options {
    LeaderId leader = {};
    RankGrid ranks = 1;
    std::string secret = {};
    Duration heartbeat = {};
    Duration silence = {};
  };
  explicit LeaderMembers(Options options);

  // What ranks are welcomed with, and have to fit.
  struct Model {
    std::string config = {};     // ManagerConfig, as TOML
    std::uint32_t layers = 0;    // of the whole model
    std::uint32_t replicas = 1;  // ranks that have the same heads
    bool shares = false;         // replicas keep their blocks together: one host memory and one file for all of them
    std::uint32_t host_blocks = 0;
    std::uint32_t disk_blocks = 0;
    TierSizes sizes = {};
    // Makes the host memory of replicas.
    std::function<Result<SharedMemoryPtr>(std::uint64_t size)> make_memory = {};
  };
  // Welcomes ranks from now on.
  void open(Model model, TimePoint now);

  // --- what happens on connections ---
  [[nodiscard]] Status join(ConnectionId connection, const RankClaim& claim, TimePoint now);  // of this process
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
  // Its process is dead, or its port destroyed: its transfers have ended.
  void ended(ConnectionId connection);
  void tick(TimePoint now);

  [[nodiscard]] std::vector<MemberEvent> take_events() { return std::exchange(events_, {}); }

  // --- which ranks are connected ---
  [[nodiscard]] std::vector<RankPresence> presence() const;
  [[nodiscard]] std::optional<ConnectionId> connection_of(std::uint32_t rank) const;  // if it is ready
  [[nodiscard]] std::uint32_t generation_of(std::uint32_t rank) const { return seats_[rank].generation; }
  // Whether the peer has proven that it knows the secret.
  [[nodiscard]] bool is_proven(ConnectionId connection) const;
  [[nodiscard]] RankPeer peer_of(std::uint32_t rank) const;
  [[nodiscard]] std::uint64_t block_bytes(std::uint32_t rank) const { return seats_[rank].block_bytes; }
  [[nodiscard]] bool is_reserved(std::uint32_t rank) const { return seats_[rank].is_reserved; }
  [[nodiscard]] LayerRange layers(std::uint32_t rank) const { return seats_[rank].layers.value_or(LayerRange{}); }
  [[nodiscard]] bool all_ready() const;
  // When tick() has something to do.
  [[nodiscard]] std::optional<TimePoint> next_time() const;

 private:
  enum class Phase : std::uint8_t { kChallenged, kKnown, kWelcomed, kReady };
  struct Member {  // a connection that has not ended
    RankPeer peer;
    Phase phase = Phase::kKnown;
    std::uint32_t generation = 0;  // from kWelcomed on
    RankNonce nonce = {};          // the leader's
    RankHello hello = {};          // from kKnown on; only the claim for ranks of this process
    TimePoint since{};             // when its phase began
    TimePoint pinged{};
    std::optional<TimePoint> unanswered = {};                              // the first ping since its last message
    [[nodiscard]] std::uint32_t rank() const { return hello.claim.rank; }  // from kKnown on
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
    bool is_reserved = true;
    std::optional<LayerRange> layers = {};  // of the rank that is welcomed
    RankClaim claim = {};                   // of the last rank that was welcomed
    bool is_keeper = false;                 // of what it shares with its replicas
    SharedMemoryPtr host_memory = {};       // of replica 0, for all of them
    std::string reason = "it has not connected yet";
    std::vector<Former> formers = {};
  };

  [[nodiscard]] Status seat(ConnectionId connection, Member& member);
  [[nodiscard]] Status check_hello(const Member& member, const RankHello& hello) const;
  [[nodiscard]] Status check_claim(const RankClaim& claim) const;
  // Whether its layers fit those of the ranks that are there.
  [[nodiscard]] Result<LayerRange> check_layers(const RankClaim& claim) const;
  // Whether the blocks of the stages that are there fit the sizes of the tiers.
  [[nodiscard]] Status check_sizes() const;
  void take_hello(ConnectionId connection, Member& member, const RankHello& hello, TimePoint now);
  void welcome(ConnectionId connection, Member& member, TimePoint now);
  // Welcomes ranks that waited for a configuration, or for the keeper of what they share. Requires: a model.
  void welcome_waiting(TimePoint now);
  // Says in the welcome where the rank keeps its blocks. Returns false if it has to wait for the keeper.
  [[nodiscard]] Result<bool> choose_store(const RankClaim& claim, RankWelcome& message);
  // Of the rank and those that hold the same.
  [[nodiscard]] std::span<Seat> replicas_of(std::uint32_t rank);
  void ready(Member& member, const RankReady& message, TimePoint now);
  void make_room_for_stranger();
  [[nodiscard]] std::uint32_t replicas_of(const Seat& seat) const;
  [[nodiscard]] bool shares(const Seat& seat) const { return model_ && model_->shares && replicas_of(seat) > 1; }
  void leave(ConnectionId connection, const std::string& reason);
  [[nodiscard]] std::optional<TimePoint> time_of(const Member& member) const;

  const Options options_;
  const Duration hello_limit_;
  std::optional<Model> model_;
  std::map<ConnectionId, Member> open_;
  std::vector<Seat> seats_;
  std::vector<MemberEvent> events_;
  std::uint64_t pings_ = 0;
};

}  // namespace cairn
