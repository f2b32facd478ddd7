// DevicePool: the engine's own block pool and prefix cache over the blocks of its device buffers.
//
// Counts the requests that use each block. A full block whose keys and values are computed may be cached under the hash
// of all tokens up to its end; requests with the same prefix share it. An unused block stays cached until its place is
// needed: blocks without a hash are reused first, then the one that was freed longest ago.
//
// Thread safety: one thread at a time.
// Ownership: the scheduler. The pool knows block numbers only; the ranks have the bytes.
// Errors: allocate() returns no blocks if there are too few, and changes nothing.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "examples/engine/step.h"

namespace cairn::engine {

// The hash of a block's tokens and of all before them.
using PrefixHash = std::uint64_t;
[[nodiscard]] PrefixHash hash_block(PrefixHash before, std::span<const TokenId> tokens);

class DevicePool {
 public:
  explicit DevicePool(std::uint32_t blocks);

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  // Blocks that nobody uses, cached or not.
  [[nodiscard]] std::uint32_t free_blocks() const { return static_cast<std::uint32_t>(free_.size()); }

  // The longest prefix of `hashes` that is cached. The caller uses the blocks until it releases them.
  [[nodiscard]] std::vector<DeviceBlock> take_cached(std::span<const PrefixHash> hashes);
  [[nodiscard]] std::optional<std::vector<DeviceBlock>> allocate(std::size_t count);
  // Caches a block that is in use. Without effect if another block has the hash.
  void cache(DeviceBlock block, PrefixHash hash);
  // Releases the blocks of a request, in order of its tokens: the last are reused before the first.
  void release(std::span<const DeviceBlock> blocks);
  // Empties the cache; blocks in use will not be cached either.
  void forget_all();

 private:
  struct Block {
    std::uint32_t users = 0;
    std::optional<PrefixHash> hash;
    std::list<DeviceBlock>::iterator free_place;  // while nobody uses it
  };

  void forget(Block& block);

  std::vector<Block> blocks_;
  std::list<DeviceBlock> free_;  // the next to be reused is the first
  std::unordered_map<PrefixHash, DeviceBlock> cached_;
};

}  // namespace cairn::engine
