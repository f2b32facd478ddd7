// Page digests of SGLang's hierarchical cache, and keys from digests that SGLang computed.
//
// A digest is the SHA-256 of the previous digest, if any, and the tokens as little-endian u32. Adapters and cache salts are
// not part of it; engines that know the storage seed hash it before the first page.
//
// Errors: a page size of 0, outputs that are too small, a position that a key cannot hold, a digest of fewer than 16 or
// more than 32 bytes, a hasher of another scheme. Nothing is written then.
// Complexity: sglang_hash_pages() and sglang_keys() allocate nothing, but OpenSSL may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/hash/sha256_digest.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

// The digest before the first page of a request with an extra key (its adapter) or a cache salt; std::nullopt if it has
// neither. Here an empty text is different from an absent one.
[[nodiscard]] std::optional<Digest> sglang_storage_seed(std::optional<std::string_view> extra_key,
                                                        std::optional<std::string_view> cache_salt);

// Computes the digests of the full pages of `tokens`, which follow `prior` (the previous page, or the storage seed), and
// returns their number.
[[nodiscard]] Result<std::size_t> sglang_hash_pages(std::span<const Token> tokens, std::uint32_t page_size,
                                                    const std::optional<Digest>& prior, std::span<Digest> digests);

// The hash of the page in SGLang's events: the first 8 bytes, signed.
[[nodiscard]] std::int64_t sglang_event_hash(const Digest& digest);

// The keys of consecutive pages from their digests, which follow `parent` or begin a sequence; or the key of one page, from
// a digest of 16 to 32 bytes. The sequence hash is the first 8 bytes of a CMAC of the whole digest, with a key of the
// hasher; at position 0 the key also holds 54 bits of the next 8. Digests that share some bytes have unrelated keys.
[[nodiscard]] Result<std::size_t> sglang_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                              std::span<const Digest> digests, std::span<BlockKey> keys);
[[nodiscard]] Result<BlockKey> sglang_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                            std::span<const std::byte> digest, std::uint64_t position);

}  // namespace cairn
