// How often and from which seed ranks are killed: rank_kill_test --kills N --seed S.
#pragma once

#include <cstdint>

namespace cairn::testing {

// For all tests of this program together, from the command line.
void set_kills(int kills, std::uint64_t seed);
[[nodiscard]] std::uint64_t kill_seed();
// The share of each engine: one in four.
[[nodiscard]] int kills_for(std::uint32_t ranks);

}  // namespace cairn::testing
