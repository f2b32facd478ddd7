// DiskEntryIndex: which blocks of a disk tier's file have an entry, and of which keys.
//
// Finds the blocks of a key without a walk over all blocks: a key may have entries in several blocks, because a block keeps
// its entry until it is written again. 28 bytes a block.
// Thread safety: one thread at a time.
// Complexity:    every call is O(1), and O(blocks found) for block_ids_of(). The seed keeps an attacker that can choose
//                keys from making long chains.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

class DiskEntryIndex {
 public:
  DiskEntryIndex() = default;
  DiskEntryIndex(std::uint32_t blocks, std::uint64_t seed);

  // The block has an entry of this key now, and of no other.
  void set(BlockId block_id, const BlockKey& key);
  // The block has an entry that names no key: it is only to be erased before the block is written.
  void set_unnamed(BlockId block_id);
  void clear(BlockId block_id);
  [[nodiscard]] bool has(BlockId block_id) const { return states_[index_of(block_id)] != State::kEmpty; }
  // Appends the blocks that have an entry of this key.
  void block_ids_of(const BlockKey& key, std::vector<BlockId>& out) const;

 private:
  enum class State : std::uint8_t { kEmpty, kUnnamed, kNamed };
  [[nodiscard]] std::uint32_t& head(const BlockKey& key) { return heads_[place(key)]; }
  [[nodiscard]] std::size_t place(const BlockKey& key) const;

  std::uint64_t seed_ = 0;
  int shift_ = 0;
  std::vector<State> states_;         // by block, as are keys_ and next_
  std::vector<BlockKey> keys_;        // of blocks that are named
  std::vector<std::uint32_t> next_;   // the next block of the same chain
  std::vector<std::uint32_t> heads_;  // the first block of each chain
};

}  // namespace cairn
