// Decides which evicted blocks are copied to the tier below. Pure functions.
#pragma once

#include <cstdint>

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

}  // namespace cairn::sim
