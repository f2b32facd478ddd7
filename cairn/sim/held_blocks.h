// HeldBlocks: one reference to each of any number of blocks of a pool, let go in any order. Internal.
//
// Does:     keeps the runs in which the blocks were taken, and releases their ends in one step when blocks go in the
//           reverse of the order in which they came, as sequences let go of them. Another order takes a run apart.
// Owner:    a KvManager; goes before its pool.
// Threads:  one.
// Requires: a block is held once. Of release(): the blocks are held.
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
  // Fails: the system has no memory for as many as the pool has.
  [[nodiscard]] static Result<HeldBlocks> create(BlockPool& pool);

  // Where they are; good until the next call.
  std::span<const BlockId> hold(ImmutableBlocks run);
  // Lets go of them, the first one first: in this order they become evictable.
  void release(std::span<const BlockId> block_ids);

 private:
  HeldBlocks(BlockPool& pool, PageArray<std::uint32_t> run_of) : pool_(&pool), run_of_(std::move(run_of)) {}

  // Gives each block of the run after the one at `place` a run of its own, and lets go of that one.
  void release_inside(std::uint32_t run, std::size_t place);
  // Lets go of all but the first `count` blocks of a run, the last one first.
  void cut(std::uint32_t run, std::size_t count);

  BlockPool* pool_;
  PageArray<std::uint32_t> run_of_;  // by block
  std::vector<ImmutableBlocks> runs_;
  std::vector<std::uint32_t> unused_;  // places in runs_
};

}  // namespace cairn::sim::internal
