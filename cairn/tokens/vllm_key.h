// Block digests of vLLM (--prefix-caching-hash-algo sha256_cbor), and keys from digests that vLLM hands over.
//
// Does:     digest = SHA-256 of canonical CBOR [parent digest, [tokens], extra keys or null]. The parent of a first
//           block is NONE_HASH, the digest of a seed text: PYTHONHASHSEED where the engine has it set.
//           The extra keys of a block, in order: LoRA name; each multimodal item that overlaps it, with its offset from
//           the block's start; the cache salt, in the first block only. An empty text is an absent one.
// Threads:  pure functions. vllm_hash_blocks and vllm_keys allocate nothing; what OpenSSL does inside is its own.
// Fails:    with nothing written: a block size of 0, outputs too small, items that are empty, unsorted or overlap, a
//           position a key cannot hold, a digest of fewer than 16 or more than 32 bytes,
//           a hasher of another scheme.
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

inline constexpr std::string_view kVllmDefaultSeed = "vllm-none-hash";
[[nodiscard]] Digest vllm_none_hash(std::string_view seed = kVllmDefaultSeed);

struct VllmMmItem {
  std::string_view identifier{};
  std::int64_t offset = 0;  // of its first token, counted from the start of the sequence
  std::uint32_t length = 0;
};

struct VllmExtras {
  // From vLLM 0.32 on adapters and items carry their kind: ("lora", name) for name, ("mm", id, offset) for (id,
  // offset).
  enum class Style : std::uint8_t { kTagged, kPlain };

  std::string_view lora_name{};
  std::span<const VllmMmItem> mm_items{};  // sorted by offset, not overlapping
  std::string_view cache_salt{};
  Style style = Style::kTagged;
};

// One block, whose first token stands at `offset` of the sequence.
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

// The digests of the full blocks of `tokens`, which follow `parent` or begin a sequence; returns how many.
[[nodiscard]] Result<std::size_t> vllm_hash_blocks(std::span<const Token> tokens, const VllmHashing& hashing,
                                                   const std::optional<VllmParent>& parent, std::span<Digest> digests);

// What vLLM's events name the block: the last 8 bytes, unsigned.
[[nodiscard]] std::uint64_t vllm_event_hash(const Digest& digest);

// Keys of blocks whose digests are given: a run of them, which follows `parent` or begins a sequence; or one, with a
// digest of 16 to 32 bytes. The sequence hash is the first 8 bytes of a CMAC of the whole digest, with a key of the
// hasher's; at position 0 the key holds 54 bits of the next 8 too. Two digests that share some of their bytes share
// nothing of their keys.
[[nodiscard]] Result<std::size_t> vllm_keys(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                            std::span<const Digest> digests, std::span<BlockKey> keys);
[[nodiscard]] Result<BlockKey> vllm_adopt(const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                          std::span<const std::byte> digest, std::uint64_t position);

}  // namespace cairn
