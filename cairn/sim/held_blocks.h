// HeldBlocks: one reference to each of any number of blocks of a pool, released in any order. Internal.
//
// Keeps the runs in which the blocks were taken. Blocks that are released in the reverse order, as sequences do, leave
// their run in one step; any other order splits the run.
//
// Thread safety: not thread-safe.
// Ownership:  owned by a KvManager; must be destroyed before the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/page_array.h"
#include "cairn/base/result.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/blocks.h"

namespace cairn::sim::internal {

class HeldBlocks {
 public:
  // Fails if there is no memory for a table of the pool's blocks.
  [[nodiscard]] static Result<HeldBlocks> create(BlockPool& pool);

  // Returns the block ids of the run, valid until the next call. Requires: none of its blocks is held.
  std::span<const BlockId> hold(ImmutableBlocks run);
  // Releases the blocks, the first one first; they become evictable in this order. Requires: all of them are held.
  void release(std::span<const BlockId> block_ids);

 private:
  HeldBlocks(BlockPool& pool, PageArray<std::uint32_t> run_of) : pool_(&pool), run_of_(std::move(run_of)) {}

  // Releases the block at `place` and gives each block after it a run of its own.
  void release_inside(std::uint32_t run, std::size_t place);
  // Releases all but the first `count` blocks of a run, the last one first.
  void cut(std::uint32_t run, std::size_t count);

  BlockPool* pool_;
  PageArray<std::uint32_t> run_of_;  // by block id
  std::vector<ImmutableBlocks> runs_;
  std::vector<std::uint32_t> unused_;  // indices in runs_
};

}  // namespace cairn::sim::internal
