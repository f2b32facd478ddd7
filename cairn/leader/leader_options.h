// LeaderOptions: how a leader listens for its ranks; RankStatus: what it knows of one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/wire/leader_id.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

// A rank is ready, or is gone.
struct RankChange {
  std::uint32_t rank = 0;
  std::uint32_t generation = 0;
  bool is_there = true;
  std::string reason = {};  // why it is gone
};

struct RankStatus {
  bool is_there = false;
  std::uint32_t generation = 0;   // the latest; 0 if the rank has never connected
  std::uint64_t process = 0;      // process id; 0 if unknown
  std::uint64_t block_bytes = 0;  // size of its part of one block
  std::uint32_t copies = 0;  // transfers in flight, including those of earlier generations that may still touch blocks
  std::string reason = {};   // why it is not there
};

struct LeaderOptions {
  std::uint32_t ranks = 1;
  std::optional<RankAddress> address = {};  // std::nullopt: all ranks join from this process
  std::string secret = {};
  Duration heartbeat = std::chrono::milliseconds(500);
  Duration silence = std::chrono::seconds(5);
  std::uint32_t transfers = 256;    // in flight at most
  std::optional<LeaderId> id = {};  // std::nullopt: make() draws one
  const Clock* clock = &steady_clock();
  std::function<void(const RankChange&)> told = {};  // on the leader's thread; may not wait
};

}  // namespace cairn
