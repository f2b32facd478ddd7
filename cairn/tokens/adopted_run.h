// Makes keys from the digests that an engine computed for its blocks. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cairn/base/result.h"
#include "cairn/hash/sha256_digest.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn::internal {

// The keys of consecutive digests, which follow `parent` or begin a sequence; returns their number.
[[nodiscard]] Result<std::size_t> adopt_digests(const KeyHasher& hasher, KeyScheme scheme,
                                                const std::optional<BlockKey>& parent, std::span<const Digest> digests,
                                                std::span<BlockKey> keys);
// The key of one digest of kLeastDigest to 32 bytes. Without a parent the position is 0.
inline constexpr std::size_t kLeastDigest = 16;
[[nodiscard]] Result<BlockKey> adopt_digest(const KeyHasher& hasher, KeyScheme scheme,
                                            const std::optional<BlockKey>& parent, std::span<const std::byte> digest,
                                            std::uint64_t position);

}  // namespace cairn::internal
