// HMAC-SHA256 (RFC 2104): proof that whoever made it knows the key. HKDF-SHA256 (RFC 5869): keys for several purposes
// from one secret.
//
// Threads:  pure. Compare with same_digest(): == tells by its time how much of a guess was right.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/tokens/sha256_digest.h"

namespace cairn {

[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// The first 32 bytes of HKDF's output. Outputs for different `info` tell nothing of each other, nor of the secret.
[[nodiscard]] Digest hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                                 std::span<const std::byte> info);

// Takes the same time wherever the two differ.
[[nodiscard]] bool same_digest(const Digest& one, const Digest& other);

}  // namespace cairn
