// Hashes of token blocks, as routers and the engines' event consumers compute them.
//
// Does:     block hash     XXH3-64 of the block's tokens (little-endian u32), seeded with the salt hash
//           sequence hash  the block hash at position 0; else XXH3-64, seed 1337, of (parent sequence hash, block hash)
//           salt hash      1337 [+ XXH3(lora, 0)] [+ XXH3(salt, 1)], wrapping; an empty text is an absent one
// Threads:  pure functions. hash_blocks allocates nothing.
// Trust:    64 bits and not cryptographic: keys that leave the process carry a Namespace (namespace.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cairn/base/result.h"

namespace cairn {

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

}  // namespace cairn
