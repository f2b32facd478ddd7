// Decides which evicted blocks are copied to the tier below, and how many. Pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cairn/sim/engine_options.h"

namespace cairn::sim {

// Whether the tier below has a block.
struct PresenceBelow {
  bool resident = false;
  bool expected = false;  // a copy is pending or in flight
};

enum class OffloadVerdict : std::uint8_t { kCopy, kResident, kExpected };

// An evicted block is copied to the next tier unless that tier has it or is receiving it.
[[nodiscard]] constexpr OffloadVerdict decide_offload(const PresenceBelow& below) {
  if (below.resident) {
    return OffloadVerdict::kResident;
  }
  return below.expected ? OffloadVerdict::kExpected : OffloadVerdict::kCopy;
}

// How many blocks of a batch are copied into a tier that has room for `room`: as many as fit, the first ones; with
// kSeed all or none.
[[nodiscard]] constexpr std::size_t blocks_to_copy(Profile profile, std::size_t batch, std::size_t room) {
  if (profile == Profile::kSeed && batch > room) {
    return 0;
  }
  return std::min(batch, room);
}

}  // namespace cairn::sim
