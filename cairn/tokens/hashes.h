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
// The hashes of `dynamo` are 64 bits without a secret: an attacker that knows a salt and tokens can find other tokens,
// under another salt, with the same hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"

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

// The placeholder tokens of one multimodal item (an image, a clip) in a sequence. The ids of these tokens are ignored: the
// block hash uses the hash of the item and the index in the item instead.
struct MmRun {
  std::uint64_t offset = 0;  // of its first token, from the start of the sequence
  std::uint32_t length = 0;  // in tokens
  std::uint64_t mm_hash = 0;
  // How many placeholders of the same item come before this run: 0 unless the item was split.
  std::uint32_t item_offset = 0;

  // Requires: the run was checked.
  [[nodiscard]] constexpr std::uint64_t end() const { return offset + length; }

  friend bool operator==(const MmRun&, const MmRun&) = default;
};

// The error names the first run that is empty, overflows, or overlaps or precedes the run before it.
[[nodiscard]] Status check_mm_runs(std::span<const MmRun> runs);

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

// --- routers ---
//
// Local block hashes, which a router computes from the tokens of a request to look up blocks that engines announced. Each
// full block is hashed by itself, not chained: hash_block(), seeded with salt_hash(cache namespace, lora name). An Eagle
// window has one token more than a block and still advances by a block. The multimodal hashes of a block, sorted, follow its
// tokens as little-endian u64; there are no frames, so the two hashes differ for multimodal blocks.
struct RouterHashing {
  std::uint32_t block_size = 0;
  SaltHash seed = kNoSalt;
  bool eagle = false;
};

// The number of full windows in `tokens` tokens; 0 if the block size is 0.
[[nodiscard]] std::size_t router_block_count(std::size_t tokens, const RouterHashing& hashing);

// Fills the front of `hashes` and returns their number. mm_hashes[i] are the multimodal hashes of block i; blocks beyond its
// end have none. Allocates only for blocks with multimodal hashes.
// Errors: a block size of 0, an output that is too small. Nothing is written then.
[[nodiscard]] Result<std::size_t> router_hashes(std::span<const Token> tokens, const RouterHashing& hashing,
                                                std::span<BlockHash> hashes,
                                                std::span<const std::vector<std::uint64_t>> mm_hashes = {});

// The token that replaces each placeholder of an item if hashes are made without multimodal information.
[[nodiscard]] constexpr Token mm_pad_token(std::uint64_t mm_hash) {
  return 1'000'000 + static_cast<Token>(mm_hash & ((1U << 30) - 1));
}

}  // namespace cairn
