// For tests of transfers: arbitrary plans and lists of blocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

// Counts the blocks, or parts of blocks, that the executor inside has copied.
class CountingExecutor final : public TransferExecutor {
 public:
  CountingExecutor(std::shared_ptr<std::atomic<std::uint64_t>> copied, std::unique_ptr<TransferExecutor> inside)
      : copied_(std::move(copied)), inside_(std::move(inside)) {}
  Result<TransferId> submit(Transfer&& transfer) override {
    const auto done = std::make_shared<decltype(transfer.done)>(transfer.done);
    transfer.done = [done, copied = copied_](TransferOutcome&& outcome) {
      *copied +=
          static_cast<std::uint64_t>(std::ranges::count(outcome.blocks, BlockState::kDone, &BlockOutcome::state));
      (*done)(std::move(outcome));
    };
    return inside_->submit(std::move(transfer));
  }
  void cancel(TransferId transfer) override { inside_->cancel(transfer); }
  void check_deadlines() override { inside_->check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inside_->load(); }
  [[nodiscard]] std::string describe() const override { return inside_->describe(); }

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> copied_;
  const std::unique_ptr<TransferExecutor> inside_;
};

}  // namespace cairn::testing
