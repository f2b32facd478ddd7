// The sums of a block as it lies in memory on one side of a plan. Used when no copy computes them: around reads and writes of
// files, and to check what is in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {

enum class PlanSide : std::uint8_t { kSource, kDestination };

// Of one box of one block, whose first row on that side is at `first_row`. Bytes between the rows are not touched.
[[nodiscard]] BlockSums sum_box(const CopyPlan& plan, const CopyPlan::Box& box, PlanSide side,
                                const std::byte* first_row);
// Of one run of a box, which is contiguous and the same on both sides, and is at `run_bytes`. Runs are numbered from the inner
// levels out, below box.runs.
[[nodiscard]] BlockSums sum_run(const CopyPlan& plan, const CopyPlan::Box& box, std::uint64_t run,
                                const std::byte* run_bytes);
// Of all that the plan moves of a block.
// Requires: that side is in host memory.
[[nodiscard]] BlockSums sum_block(const CopyPlan& plan, PlanSide side, std::uint32_t block);

}  // namespace cairn
