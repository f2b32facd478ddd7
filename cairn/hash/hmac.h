// HMAC-SHA256 (RFC 2104): proves that its maker knows the key. HKDF-SHA256 (RFC 5869): derives keys for several purposes
// from one secret.
//
// Errors: aborts if OpenSSL has no HMAC-SHA256, which is a broken installation.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/hash/sha256_digest.h"

namespace cairn {

[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// The first 32 bytes of HKDF's output. The output for one `info` reveals neither the secret nor the output for another
// `info`.
[[nodiscard]] Digest hkdf_sha256(std::span<const std::byte> secret, std::span<const std::byte> salt,
                                 std::span<const std::byte> info);

// Compares in constant time. Use it to verify an HMAC: the time that == takes would reveal how many bytes are right.
[[nodiscard]] bool same_digest(const Digest& one, const Digest& other);

}  // namespace cairn
