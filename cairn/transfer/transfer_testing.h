// For tests of transfers: plans and lists of blocks, where it matters little which.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cairn/layout/layout_testing.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/executor.h"

namespace cairn::testing {

inline CopyPlanPtr plan_between(const BlockLayoutPtr& source, const BlockLayoutPtr& destination,
                                const BlockPart& part = {}) {
  Result<CopyPlanPtr> plan = CopyPlan::make(source, destination, part);
  CAIRN_CHECK(plan.has_value(), plan.has_value() ? "" : plan.error().message);
  return *plan;
}

// Blocks of 64 bytes a layer, in memory of its own.
inline CopyPlanPtr small_plan(std::uint32_t blocks = 64, std::uint32_t layers = 1, const BlockPart& part = {}) {
  const KvShape shape{.layers = layers, .kv = 2, .page_size = 2, .heads = 1, .head_size = 8, .element_bits = 16};
  const BlockLayout::Options options{.shape = shape, .blocks = blocks};
  return plan_between(TestLayout::make(options).layout(), TestLayout::make(options).layout(), part);
}

// Block i to block i.
inline std::vector<TransferBlock> same_blocks(std::uint32_t count) {
  std::vector<TransferBlock> blocks(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks[i] = {.pair = {i, i}, .tag = {i, ~std::uint64_t{i}}};
  }
  return blocks;
}

}  // namespace cairn::testing
