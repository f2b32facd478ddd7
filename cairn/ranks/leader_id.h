// LeaderId: names one run of a leader. A leader that is started again has another id.
//
// A leader draws its id at random when it starts. Ranks get it with the welcome, workers with the metadata of every
// iteration. Step marks, fences and operations count anew in every run, so they only mean something beside the id of
// their leader.
#pragma once

#include <cstdint>

namespace cairn {

struct LeaderId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const LeaderId&, const LeaderId&) = default;
};

// 128 bits from the system's source of randomness.
[[nodiscard]] LeaderId make_leader_id();

}  // namespace cairn
