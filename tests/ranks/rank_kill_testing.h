// How often and from which seed ranks are killed: rank_kill_test --kills N --seed S.
#pragma once

#include <cstdint>

namespace cairn::testing {

// Of all tests of this program together, as the command line says.
void set_kills(int kills, std::uint64_t seed);
[[nodiscard]] std::uint64_t kill_seed();
// The part that an engine of so many ranks has in them: one in four.
[[nodiscard]] int kills_for(std::uint32_t ranks);

}  // namespace cairn::testing
