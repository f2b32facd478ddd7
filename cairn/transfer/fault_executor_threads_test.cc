#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/transfer/executor_conformance_testing.h"
#include "cairn/transfer/fault_executor.h"
#include "cairn/transfer/host_executor.h"

namespace cairn {
namespace {

using testing::BlockStore;
using testing::ExecutorCase;
using testing::ExecutorConformanceTest;
using testing::HostStore;

std::unique_ptr<FaultExecutor> faulty(const Clock& clock, std::size_t limit, FaultOptions options) {
  return std::make_unique<FaultExecutor>(
      clock, std::make_unique<HostExecutor>(clock, HostExecutor::Options{.threads = 2, .limit = limit}),
      std::move(options));
}

std::unique_ptr<BlockStore> host_store(const BlockLayout::Options& options) {
  return std::make_unique<HostStore>(options);
}

// Without faults it passes the conformance suite.
INSTANTIATE_TEST_SUITE_P(Faults, ExecutorConformanceTest,
                         ::testing::Values(ExecutorCase{
                             .name = "none",
                             .make = [](const Clock& clock,
                                        std::size_t limit) { return faulty(clock, limit, FaultOptions{}); },
                             .source = host_store,
                             .destination = host_store,
                             .foreign = [](const BlockLayout::Options& options) -> std::unique_ptr<BlockStore> {
                               return std::make_unique<HostStore>(options, MemoryKind::kDevice);
                             }}),
                         testing::case_name);

TEST(FaultExecutorThreadsTest, AllFaultsAtOnceTellEveryBlockTheTruth) {
  const KvShape shape{.layers = 4, .kv = 2, .page_size = 4, .heads = 2, .head_size = 64, .element_bits = 16};
  const BlockLayout::Options options{.shape = shape, .blocks = 256};
  testing::TestLayout source = testing::TestLayout::make(options);
  testing::TestLayout destination = testing::TestLayout::make(options);
  source.fill(1);
  destination.fill(2);
  const CopyPlanPtr plan = *CopyPlan::make(source.layout(), destination.layout());
  auto executor = faulty(steady_clock(), 16,
                         {.rules = {{.fault = Fault::kFail, .chance = 0.05},
                                    {.fault = Fault::kShort, .chance = 0.05},
                                    {.fault = Fault::kDelay, .chance = 0.1},
                                    {.fault = Fault::kCorruptInFlight, .chance = 0.05},
                                    {.fault = Fault::kHang, .chance = 0.05},
                                    {.fault = Fault::kLose, .chance = 0.02}},
                          .seed = 5,
                          .delay = std::chrono::microseconds(200)});
  std::vector<BlockState> states(256);
  int done = 0;
  int settled = 0;
  for (std::uint32_t first = 0; first < 256; first += 16) {
    Transfer transfer{.plan = plan,
                      .deadline = steady_clock().now() + std::chrono::seconds(first % 32 == 0 ? 1 : 1000),
                      .done =
                          [&, first](TransferOutcome&& outcome) {
                            for (std::uint32_t i = 0; i < 16; ++i) {
                              states[first + i] = outcome.blocks[i].state;
                            }
                            ++done;
                          },
                      .settled = [&] { ++settled; }};
    for (std::uint32_t i = 0; i < 16; ++i) {
      transfer.blocks.push_back({.pair = {first + i, first + i}});
    }
    ASSERT_TRUE(executor->submit(std::move(transfer)).has_value());
  }
  const auto fault_of = [&, faults = [&] {
    std::vector<Fault> all(256);
    for (std::uint32_t i = 0; i < 256; ++i) {
      all[i] = executor->fault_of(i + 1);
    }
    return all;
  }()](std::uint32_t block) { return faults[block]; };
  executor->release();
  executor.reset();
  EXPECT_EQ(done, 16);
  EXPECT_EQ(settled, 16);
  for (std::uint32_t block = 0; block < 256; ++block) {
    const Fault fault = fault_of(block);
    const bool fails = fault == Fault::kFail || fault == Fault::kShort || fault == Fault::kLose;
    if (states[block] == BlockState::kDone) {
      EXPECT_FALSE(fails) << "block " << block;
      EXPECT_EQ(destination.holds(block, source, block), fault != Fault::kCorruptInFlight) << "block " << block;
    } else if (!fails) {
      EXPECT_EQ(states[block], BlockState::kCancelled) << "block " << block << " of fault " << to_string(fault);
    }
  }
}

}  // namespace
}  // namespace cairn
