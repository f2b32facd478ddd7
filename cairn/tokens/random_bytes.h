// fill_random: bytes that nobody can predict, from the system (getrandom). Internal.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::internal {

// Aborts if the system gives none: there is no safe way to go on.
void fill_random(std::span<std::byte> bytes);

}  // namespace cairn::internal
