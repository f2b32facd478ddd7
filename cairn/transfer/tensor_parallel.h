// Plans between the ranks of two tensor-parallel splits of one model: from k ranks to m ranks.
//
// Does:     gives the plans that fill every rank of the destination: which rank's layout is read, which is written, and
//           the heads. Rows are numbered as in the whole model, so that sums of the parts of a block add up to those of
//           the block, whatever it was split into: k ranks to one layout of all heads (a host tier that outlives a
//           change of k), and from there to m ranks.
// Splits:   heads are dealt in order, equally many to a rank. Where there are more ranks than heads (few K/V heads; MLA
//           and states have one), each head stands on as many ranks that follow each other: they are replicas. A replica
//           that is read is the one nearest to the reader by rank, so that equal splits copy from rank i to rank i and
//           readers spread; a destination's replicas are all written. So bytes that all ranks have are stored once when
//           the destination has them once.
// Threads:  pure.
// Fails:    heads and ranks of which neither divides the other, layouts that have not the heads that their rank has, and
//           what CopyPlan refuses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {

// What one of `ranks` ranks has of `whole_heads` heads.
struct HeadShare {
  std::uint32_t first_head = 0;
  std::uint32_t heads = 0;
  std::uint32_t replica = 0;  // which of the ranks that have the same heads
  friend bool operator==(const HeadShare&, const HeadShare&) = default;
};
[[nodiscard]] Result<HeadShare> share_of(std::uint32_t rank, std::uint32_t ranks, std::uint32_t whole_heads);

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

// One layout a rank, in the order of ranks. The plans go by destination rank, and then by head.
[[nodiscard]] Result<std::vector<RankPlan>> plan_ranks(std::span<const BlockLayoutPtr> sources,
                                                       std::span<const BlockLayoutPtr> destinations,
                                                       const TensorParallelOptions& options);

}  // namespace cairn
