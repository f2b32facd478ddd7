// KeyedKeys: the expanded AES keys of a KeyHasher whose scheme has a secret, and the steps of hashing with them. Internal.
//
// Thread safety: immutable.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/hash/cmac.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn::internal {

struct KeyedKeys {
  KeyedKeys(const KeySecret& secret, const Namespace& space, const CmacKernel& kernel = cmac_kernels().front());

  CmacKey leaf;
  CmacKey frames;
  CmacKey chain;
  CmacKey root;
  CmacKey digest;
};

// A block as two little-endian words.
struct Words {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};
[[nodiscard]] inline Words words_of(const AesBlock& block) { return std::bit_cast<Words>(block); }
[[nodiscard]] inline AesBlock block_of(const Words& words) { return std::bit_cast<AesBlock>(words); }

// The key of the block at `position` from the tag of the block and all blocks before it.
[[nodiscard]] inline BlockKey key_of(std::uint32_t position, const AesBlock& tag, SequenceHash parent) {
  const Words words = words_of(tag);
  return position == 0 ? BlockKey::wide_root(SequenceHash{words.first}, words.second)
                       : BlockKey::make_checked(position, SequenceHash{words.first}, parent);
}

// The state of a chain of keys before its next block.
struct ChainLink {
  std::uint32_t position = 0;           // of the next block
  AesBlock parent;                      // the words of the previous key, or the root
  SequenceHash parent_sequence_hash{};  // of the previous key
};

// Computes the keys of consecutive blocks from their leaves, and moves `link` behind them.
// Requires: a key can hold all positions.
void chain_keys(const CmacKey& chain, ChainLink& link, std::span<const AesBlock> leaves, BlockKey* keys);
#if defined(__x86_64__)
// The same with AES instructions.
void chain_keys_with_aes_ni(const CmacKey& chain, ChainLink& link, std::span<const AesBlock> leaves, BlockKey* keys);
#endif

}  // namespace cairn::internal
