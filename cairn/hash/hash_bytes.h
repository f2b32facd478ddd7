// hash_bytes: XXH3-64 of any bytes. Detects accidental damage of messages and records; it is not cryptographic, so it
// does not protect against an attacker (hmac.h does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cairn {

[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace cairn
