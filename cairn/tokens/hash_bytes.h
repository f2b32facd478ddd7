// hash_bytes: XXH3-64 of any bytes, to seal what goes over wires against damage.
//
// Threads:  pure.
// Trust:    not cryptographic: it keeps out no one who means harm. That is hmac.h's work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn {

[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace cairn
