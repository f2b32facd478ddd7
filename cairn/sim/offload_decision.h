// What goes down a tier, and how much of it. Pure: facts in, a decision out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cairn/sim/profile.h"

namespace cairn::sim {

// What the tier below knows of a block.
struct PresenceBelow {
  bool resident = false;
  bool expected = false;  // a copy of it is on its way there
};

enum class OffloadVerdict : std::uint8_t { kCopy, kResident, kExpected };

// A block that leaves a tier is copied to the next one unless it is there, or will be.
[[nodiscard]] constexpr OffloadVerdict decide_offload(const PresenceBelow& below) {
  if (below.resident) {
    return OffloadVerdict::kResident;
  }
  return below.expected ? OffloadVerdict::kExpected : OffloadVerdict::kCopy;
}

// How many of the first blocks of a batch go into a tier that has room for `room`: as many as fit, where the original
// gives up the whole batch.
[[nodiscard]] constexpr std::size_t blocks_to_copy(Profile profile, std::size_t batch, std::size_t room) {
  if (profile == Profile::kSeed && batch > room) {
    return 0;
  }
  return std::min(batch, room);
}

}  // namespace cairn::sim
