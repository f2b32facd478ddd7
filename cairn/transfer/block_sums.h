// block_sums(): what the bytes of one block add up to, as they lie on one side of a plan.
#pragma once

#include <cstdint>

#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {

enum class PlanSide : std::uint8_t { kSource, kDestination };

// Of the rows that the plan moves. Requires: host memory on that side.
[[nodiscard]] BlockSums block_sums(const CopyPlan& plan, const BlockPair& pair, PlanSide side);

}  // namespace cairn
