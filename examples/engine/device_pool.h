// DevicePool: the engine's own block pool and prefix cache over the blocks of its device buffers.
//
// Does:     counts who uses each block. A full block whose keys and values are computed may be cached under the hash of
//           all tokens up to its end; whoever needs the same beginning shares it. A block that nobody uses stays cached
//           until it is needed for something else: those without a hash first, then the one that was freed longest ago.
// Fails:    allocate() gives nothing when there are too few blocks; nothing changes.
// Owner:    the scheduler. It knows block numbers only; the bytes are the ranks'.
// Threads:  one at a time.
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

  // The longest beginning of `hashes` that is cached. It belongs to the caller too, until released.
  [[nodiscard]] std::vector<DeviceBlock> take_cached(std::span<const PrefixHash> hashes);
  [[nodiscard]] std::optional<std::vector<DeviceBlock>> allocate(std::size_t count);
  // Caches a block that is in use. Without effect if another block has the hash: one of them is enough.
  void cache(DeviceBlock block, PrefixHash hash);
  // Takes back what a request had, in order of its tokens: its end is used again before its beginning.
  void release(std::span<const DeviceBlock> blocks);
  // Nothing is cached any more, and blocks in use will not be.
  void forget_all();

 private:
  struct Block {
    std::uint32_t users = 0;
    std::optional<PrefixHash> hash;
    std::list<DeviceBlock>::iterator free_place;  // while nobody uses it
  };

  void forget(Block& block);

  std::vector<Block> blocks_;
  std::list<DeviceBlock> free_;  // what is taken next stands first
  std::unordered_map<PrefixHash, DeviceBlock> cached_;
};

}  // namespace cairn::engine
