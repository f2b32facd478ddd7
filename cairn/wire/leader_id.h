// LeaderId: names one run of a leader. A leader that is started again has another id.
//
// A leader makes its id when it starts: the time, and 64 random bits. Ranks get it with the welcome, workers with the
// metadata of every iteration. Step marks, fences and operations count anew in every run, so they only mean something
// beside the id of their leader. Only the whole id says whether two runs are the same one; the time is a hint which of two
// is the later one, since clocks are set back now and then.
#pragma once

#include <cstdint>

namespace cairn {

struct LeaderId {
  std::uint64_t started = 0;  // nanoseconds since 1970, by the clock of the leader's machine
  std::uint64_t random = 0;
  friend bool operator==(const LeaderId&, const LeaderId&) = default;
};

[[nodiscard]] LeaderId make_leader_id();

}  // namespace cairn
