// Page digests of SGLang's hierarchical cache, and keys from digests that SGLang hands over.
//
// Does:     digest = SHA-256 of the digest before, if any, and the tokens as little-endian u32. Tokens only: adapters
//           and cache salts enter, in engines that know of it, as the storage seed before the first page.
// Threads:  pure functions. sglang_hash_pages and sglang_keys allocate nothing; what OpenSSL does inside is its own.
// Fails:    with nothing written: a page size of 0, outputs too small, a position a key cannot hold, a digest of fewer
//           than 16 or more than 32 bytes, a hasher of another scheme.
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

// What stands before the first page of a request with an extra key (its adapter) or a cache salt; nothing without both.
// Here an empty text is not an absent one.
[[nodiscard]] std::optional<Digest> sglang_storage_seed(std::optional<std::string_view> extra_key,
                                                        std::optional<std::string_view> cache_salt);

// The digests of the full pages of `tokens`, which follow `prior` (the page before, or the storage seed); returns their
// number.
[[nodiscard]] Result<std::size_t> sglang_hash_pages(std::span<const Token> tokens, std::uint32_t page_size,
                                                    const std::optional<Digest>& prior, std::span<Digest> digests);

// What SGLang's events name the page: the first 8 bytes, signed.
[[nodiscard]] std::int64_t sglang_event_hash(const Digest& digest);

// Keys of pages whose digests are given: a run of them, which follows `parent` or begins a sequence; or one, with a
// digest of 16 to 32 bytes. The sequence hash is the first 8 bytes of a CMAC of the whole digest, with a key of the
// hasher's; at position 0 the key holds 54 bits of the next 8 too. Two digests that share some of their bytes share
// nothing of their keys.
[[nodiscard]] Result<std::size_t> sglang_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                              std::span<const Digest> digests, std::span<BlockKey> keys);
[[nodiscard]] Result<BlockKey> sglang_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                            std::span<const std::byte> digest, std::uint64_t position);

}  // namespace cairn
