// What an engine sees of a leader and its ranks: how a leader listens (LeaderOptions) and where (RankAddress), which run of the
// leader this is (LeaderId), what the leader knows of a rank (RankStatus) and a rank of its leader (RankState).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/layout/rank_grid.h"

namespace cairn {

// Where a leader listens: "unix:/run/cairn/leader.sock" or "tcp:127.0.0.1:7070".
struct RankAddress {
  struct Unix {
    std::string path;
    friend bool operator==(const Unix&, const Unix&) = default;
  };
  struct Tcp {
    std::string host;
    std::uint16_t port = 0;
    friend bool operator==(const Tcp&, const Tcp&) = default;
  };
  std::variant<Unix, Tcp> place;

  // Refuses any other form, a path that is too long for a Unix socket, and an invalid port. Port 0 means any free port;
  // Leader::address() says which one it is.
  [[nodiscard]] static Result<RankAddress> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(const RankAddress&, const RankAddress&) = default;
};

// Names one run of a leader. A leader that is started again has another id.
//
// A leader makes its id when it starts: the time, and 64 random bits. Ranks get it with the welcome, workers with the
// metadata of every iteration. Step marks, fences and operations count anew in every run, so they only mean something
// beside the id of their leader. Only the whole id says whether two runs are the same one; the time is a hint which of two
// is the later one, since clocks are set back now and then.
struct LeaderId {
  std::uint64_t started = 0;  // nanoseconds since 1970, by the clock of the leader's machine
  std::uint64_t random = 0;
  friend bool operator==(const LeaderId&, const LeaderId&) = default;
};

[[nodiscard]] LeaderId make_leader_id();

// How a rank is connected to its leader, and what it has copied.
struct RankState {
  bool is_connected = false;
  LeaderId leader = {};  // to which it is, or was last, connected
  std::uint32_t generation = 0;
  std::uint32_t transfers = 0;  // in flight
  std::uint64_t done = 0;       // blocks
  std::uint64_t failed = 0;     // blocks, for any reason
  std::string reason = {};      // why it is not connected
  std::string damage = {};      // what was wrong with its file of the disk tier, and what was done about it
  bool is_reserved = true;      // the space of that file; false if the file system cannot reserve any
};

// A rank is ready, or is gone.
struct RankChange {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
  bool is_there = true;
  std::string reason = {};  // why it is gone
  bool is_reserved = true;  // as RankState, if it is there
};

// What a leader knows of a rank.
struct RankStatus {
  bool is_there = false;
  std::uint32_t generation = 0;   // the latest; 0 if the rank has never connected
  std::uint64_t process = 0;      // process id; 0 if unknown
  std::uint64_t block_bytes = 0;  // size of its part of one block
  LayerRange layers = {};         // of the model; none if it is not there
  bool is_reserved = true;        // as RankState
  std::uint32_t transfers = 0;    // in flight, including those of earlier generations that may still touch blocks
  std::string reason = {};        // why it is not connected
};

// How a leader listens for its ranks.
struct LeaderOptions {
  RankGrid ranks = 1;
  std::optional<RankAddress> address = {};  // std::nullopt: all ranks join from this process
  std::string secret = {};
  Duration heartbeat = std::chrono::milliseconds(500);
  Duration silence = std::chrono::seconds(5);
  std::uint32_t transfers = 256;    // in flight at most
  std::optional<LeaderId> id = {};  // std::nullopt: make() draws one
  const Clock* clock = &steady_clock();
  std::function<void(const RankChange&)> on_change = {};  // on the leader's thread; may not wait
};

}  // namespace cairn
