// RankState: how a rank is connected to its leader, and what it has copied.
#pragma once

#include <cstdint>
#include <string>

#include "cairn/wire/leader_id.h"

namespace cairn {

struct RankState {
  bool is_connected = false;
  LeaderId leader = {};  // to which it is, or was last, connected
  std::uint32_t generation = 0;
  std::uint32_t copies = 0;  // transfers in flight
  std::uint64_t done = 0;    // blocks
  std::uint64_t failed = 0;  // blocks, for any reason
  std::string reason = {};   // why it is not connected
  std::string damage = {};   // what was wrong with its file of the disk tier, and what was done about it
};

}  // namespace cairn
