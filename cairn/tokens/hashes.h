// Hashes of token blocks: hash_blocks(), which names blocks under any scheme (key_hasher.h), and the hashes of scheme
// `dynamo`, as routers and the engines' event consumers compute them.
//
// Does:     block hash     XXH3-64 of the block's tokens (little-endian u32), seeded with the salt hash
//           sequence hash  the block hash at position 0; else XXH3-64, seed 1337, of (parent sequence hash, block hash)
//           salt hash      1337 [+ XXH3(lora, 0)] [+ XXH3(salt, 1)], wrapping; an empty text is an absent one
//           A block that a multimodal run touches is hashed as one 13-byte frame per token instead:
//           00, token u32, 0 u64; or, under a run, 01, place in the item u32, hash of the item u64 (little-endian).
// Threads:  pure functions. hash_blocks allocates nothing.
// Trust:    the hashes of `dynamo` are 64 bits without a secret: who knows a salt and tokens can find other tokens, under
//           another salt, with the same hash.
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

// What a request without salt and LoRA adapter hashes with.
inline constexpr SaltHash kNoSalt{1337};

[[nodiscard]] SaltHash salt_hash(std::string_view salt, std::string_view lora_name);
[[nodiscard]] BlockHash hash_block(std::span<const Token> tokens, SaltHash salt);
// A block in position 0 has no parent: its sequence hash is its block hash.
[[nodiscard]] constexpr SequenceHash sequence_hash_of_root(BlockHash block) { return SequenceHash{value_of(block)}; }
[[nodiscard]] SequenceHash chain_hash(SequenceHash parent, BlockHash block);

// Names the full blocks of `tokens`, which follow `parent` or, without one, begin a sequence; returns how many those
// are. Tokens that do not fill a block are left out. Fills the front of `keys` and, unless it is empty, of
// `block_hashes`. `runs` are sorted; those that stand elsewhere in the sequence do no harm.
// Fails, with nothing written: a block size of 0, outputs too small, bad runs, a position a key cannot hold, a hasher
// whose scheme makes no keys from tokens.
[[nodiscard]] Result<std::size_t> hash_blocks(std::span<const Token> tokens, std::uint32_t block_size,
                                              const KeyHasher& hasher, const std::optional<BlockKey>& parent,
                                              std::span<BlockKey> keys, std::span<BlockHash> block_hashes = {},
                                              std::span<const MmRun> runs = {});

}  // namespace cairn
