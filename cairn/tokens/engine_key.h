// Keys from what engines and routers computed: digests of vLLM and SGLang, 64-bit hashes of routers. The digests themselves
// can be computed here too.
//
// Errors: a block or page size of 0, outputs that are too small, multimodal items that are empty, unsorted or overlapping, a
// position that a key cannot hold or that is not the one after the parent's, a digest of fewer than 16 or more than 32 bytes,
// a hasher of another scheme. Nothing is written then.
// Complexity: functions that fill spans allocate nothing, but OpenSSL may.
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

// --- vLLM (--prefix-caching-hash-algo sha256_cbor) ---
//
// A digest is the SHA-256 of canonical CBOR [parent digest, [tokens], extra keys or null]. The parent of the first block is
// NONE_HASH, the digest of a seed text: PYTHONHASHSEED if the engine has it set. The extra keys of a block, in order: LoRA
// name; each multimodal item that overlaps the block, with its offset from the start of the block; the cache salt, in the
// first block only. An empty text counts as absent.

inline constexpr std::string_view kVllmDefaultSeed = "vllm-none-hash";
[[nodiscard]] Digest vllm_none_hash(std::string_view seed = kVllmDefaultSeed);

struct VllmMmItem {
  std::string_view identifier{};
  std::int64_t offset = 0;  // of its first token, from the start of the sequence
  std::uint32_t length = 0;
};

struct VllmExtras {
  // kTagged (vLLM 0.32 and later): ("lora", name) and ("mm", id, offset). kPlain: name and (id, offset).
  enum class Style : std::uint8_t { kTagged, kPlain };

  std::string_view lora_name{};
  std::span<const VllmMmItem> mm_items{};  // sorted by offset, not overlapping
  std::string_view cache_salt{};
  Style style = Style::kTagged;
};

// The digest of one block, whose first token has index `offset` in the sequence.
[[nodiscard]] Digest vllm_block_digest(const Digest& parent, std::span<const Token> tokens,
                                       const VllmExtras& extras = {}, std::int64_t offset = 0);

struct VllmHashing {
  std::uint32_t block_size = 0;
  VllmExtras extras{};
  Digest none_hash = vllm_none_hash();
};

struct VllmParent {
  Digest digest;
  std::uint32_t position = 0;
};

// Computes the digests of the full blocks of `tokens`, which follow `parent` or begin a sequence; returns their number.
[[nodiscard]] Result<std::size_t> vllm_hash_blocks(std::span<const Token> tokens, const VllmHashing& hashing,
                                                   const std::optional<VllmParent>& parent, std::span<Digest> digests);

// The hash of the block in vLLM's events: the last 8 bytes, unsigned.
[[nodiscard]] std::uint64_t vllm_event_hash(const Digest& digest);

// The keys of consecutive blocks from their digests, which follow `parent` or begin a sequence; or the key of one block,
// from a digest of 16 to 32 bytes. The sequence hash is the first 8 bytes of a CMAC of the whole digest, with a key of the
// hasher; at position 0 the key also holds 54 bits of the next 8. Digests that share some bytes have unrelated keys.
[[nodiscard]] Result<std::size_t> vllm_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                            std::span<const Digest> digests, std::span<BlockKey> keys);
[[nodiscard]] Result<BlockKey> vllm_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                          std::span<const std::byte> digest, std::uint64_t position);

// --- SGLang (hierarchical cache) ---
//
// A digest is the SHA-256 of the previous digest, if any, and the tokens as little-endian u32. Adapters and cache salts are
// not part of it; engines that know the storage seed hash it before the first page.

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

// As vllm_keys() and vllm_adopt().
[[nodiscard]] Result<std::size_t> sglang_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                              std::span<const Digest> digests, std::span<BlockKey> keys);
[[nodiscard]] Result<BlockKey> sglang_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                            std::span<const std::byte> digest, std::uint64_t position);

// --- events ---

// What the events of an engine call the block of a digest, or a router the block of its 8-byte hash: vllm_event_hash(),
// sglang_event_hash() as an unsigned number, or the hash. Requires: one of these schemes, and at least 8 bytes.
[[nodiscard]] BlockHash engine_event_hash(KeyScheme scheme, std::span<const std::byte> digest);

// --- routers (scheme `router`) ---
//
// The sequence hash of such a key is the router's hash XOR the id of the namespace: the same hash under another tenant or
// model is another key, and the router's hash can be read back. There is no secret: tokens whose router hashes collide have
// equal keys.

// `router_hash` is of the block at `position` and all blocks before it; without a parent the position is 0.
[[nodiscard]] Result<BlockKey> adopt_hash(NamespaceId ns, const std::optional<BlockKey>& parent,
                                          std::uint64_t router_hash, std::uint64_t position);
// The router hash that was given to adopt_hash().
[[nodiscard]] constexpr std::uint64_t router_hash_of(NamespaceId ns, const BlockKey& key) {
  return value_of(key.sequence_hash()) ^ value_of(ns);
}

}  // namespace cairn
