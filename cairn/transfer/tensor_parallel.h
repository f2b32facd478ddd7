// Plans between the ranks of two tensor-parallel splits of one model, from k ranks to m ranks: which rank's layout is read, which
// is written, and which heads. Rows are numbered as in the whole model, so that the sums of the parts of a block add up to those
// of the block, whatever it was split into: for example from k ranks to one layout with all heads (a host tier that outlives a
// change of k), and from there to m ranks.
//
// Heads are dealt as layout/rank_grid.h says. Of several replicas of a head, the one nearest to the reader by rank is read, so that
// equal splits copy from rank i to rank i. All replicas of a destination are written. Bytes that all ranks have are therefore
// stored once if the destination has them once.
//
// Errors: neither of heads and ranks divides the other, a layout has not the heads of its rank, and the errors of CopyPlan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {

struct RankPlan {
  std::uint32_t source_rank = 0;
  std::uint32_t destination_rank = 0;
  // Of the destination's heads. The plans of replica 0 move each row of a block once: their sums add up to the block's.
  std::uint32_t replica = 0;
  CopyPlanPtr plan;
};

struct TensorParallelOptions {
  std::uint32_t whole_heads = 0;  // of the model
  std::uint32_t first_layer = 0;
  std::uint32_t layers = 0;  // 0: all from the first on
};

// One layout for each rank, in order. The plans are sorted by destination rank, then by head.
[[nodiscard]] Result<std::vector<RankPlan>> plan_ranks(std::span<const BlockLayoutPtr> sources,
                                                       std::span<const BlockLayoutPtr> destinations,
                                                       const TensorParallelOptions& options);

}  // namespace cairn
