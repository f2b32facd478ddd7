// Secrets in memory: making them, comparing them, erasing them. Internal.
#pragma once

#include <cstddef>
#include <span>

namespace cairn::internal {

// Fills `bytes` with random bytes of the system (getrandom) that nobody can predict. Aborts if the system has none,
// because there is no safe way to go on.
void fill_random(std::span<std::byte> bytes);

// Compares in a time that depends only on the sizes, so that the time does not reveal where two secrets differ.
[[nodiscard]] bool same_secret(std::span<const std::byte> one, std::span<const std::byte> other);

// Overwrites `bytes`; the compiler does not remove the write even if the memory is never read again.
void erase_secret(std::span<std::byte> bytes);

}  // namespace cairn::internal
