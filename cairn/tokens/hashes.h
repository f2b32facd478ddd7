// Hashes of token blocks: hash_blocks(), which makes the keys of blocks in any scheme (key_hasher.h), and the hashes of
// scheme `dynamo`, which routers and consumers of engine events compute too:
//
//   block hash     XXH3-64 of the block's tokens (little-endian u32), seeded with the salt hash
//   sequence hash  the block hash at position 0; else XXH3-64, seed 1337, of (parent sequence hash, block hash)
//   salt hash      1337 [+ XXH3(lora, 0)] [+ XXH3(salt, 1)], wrapping; an empty text counts as absent
//
// A block that overlaps a multimodal run is hashed as one 13-byte frame for each token (little-endian): 00, token u32,
// 0 u64; or, for a token of a run, 01, index in the item u32, hash of the item u64.
//
// The hashes of `dynamo` are 64 bits without a secret: somebody who knows a salt and tokens can find other tokens, under
// another salt, with the same hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/tokens/mm_run.h"

namespace cairn {

class BlockKey;
class KeyHasher;

using Token = std::uint32_t;

enum class BlockHash : std::uint64_t {};
enum class SequenceHash : std::uint64_t {};
enum class SaltHash : std::uint64_t {};

[[nodiscard]] constexpr std::uint64_t value_of(BlockHash hash) { return static_cast<std::uint64_t>(hash); }
[[nodiscard]] constexpr std::uint64_t value_of(SequenceHash hash) { return static_cast<std::uint64_t>(hash); }
[[nodiscard]] constexpr std::uint64_t value_of(SaltHash hash) { return static_cast<std::uint64_t>(hash); }

// The salt hash of a request without salt and LoRA adapter.
inline constexpr SaltHash kNoSalt{1337};

[[nodiscard]] SaltHash salt_hash(std::string_view salt, std::string_view lora_name);
[[nodiscard]] BlockHash hash_block(std::span<const Token> tokens, SaltHash salt);
// A block at position 0 has no parent: its sequence hash is its block hash.
[[nodiscard]] constexpr SequenceHash sequence_hash_of_root(BlockHash block) { return SequenceHash{value_of(block)}; }
[[nodiscard]] SequenceHash chain_hash(SequenceHash parent, BlockHash block);

// Computes the keys of the full blocks of `tokens`, which follow `parent` or begin a sequence, and returns their number.
// Tokens after the last full block are ignored. Fills the front of `keys` and, unless it is empty, of `block_hashes`.
// `runs` are sorted; runs outside of these tokens are ignored. Allocates nothing.
// Errors: a block size of 0, outputs that are too small, invalid runs, a position that a key cannot hold, a hasher whose
// scheme makes no keys from tokens. Nothing is written then.
[[nodiscard]] Result<std::size_t> hash_blocks(std::span<const Token> tokens, std::uint32_t block_size,
                                              const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                              std::span<BlockKey> keys, std::span<BlockHash> block_hashes = {},
                                              std::span<const MmRun> runs = {});

}  // namespace cairn
