#include "cairn/transfer/host_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/transfer/executor_conformance_testing.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using testing::BlockStore;
using testing::ExecutorCase;
using testing::ExecutorConformanceTest;
using testing::HostStore;

ExecutorCase host_case(const std::string& name, std::uint32_t threads, MemoryKind destination) {
  const auto in = [](MemoryKind kind) {
    return [kind](const BlockLayout::Options& options) -> std::unique_ptr<BlockStore> {
      return std::make_unique<HostStore>(options, kind);
    };
  };
  return {.name = name,
          .make =
              [threads](const Clock& clock, std::size_t limit) {
                return std::make_unique<HostExecutor>(clock, HostExecutor::Options{.threads = threads, .limit = limit});
              },
          .source = in(MemoryKind::kSystem),
          .destination = in(destination),
          .foreign = in(MemoryKind::kDevice)};  // never dereferenced: the plan is refused
}

INSTANTIATE_TEST_SUITE_P(Host, ExecutorConformanceTest,
                         ::testing::Values(host_case("one_thread", 1, MemoryKind::kSystem),
                                           host_case("four_threads", 4, MemoryKind::kPinned)),
                         testing::case_name);

TEST(HostExecutorTest, SaysHowManyThreadsAndWhichKernel) {
  const HostExecutor three(steady_clock(), {.threads = 3});
  EXPECT_THAT(three.describe(), ::testing::StartsWith("host copies, 3 threads, "));
  const HostExecutor one(steady_clock(), {.threads = 1});
  EXPECT_THAT(one.describe(), ::testing::StartsWith("host copies, 1 thread, "));
}

TEST(HostExecutorTest, SaysWhichMemoryItRefuses) {
  const BlockLayout::Options options{
      .shape = {.layers = 1, .page_size = 2, .heads = 1, .head_size = 8, .element_bits = 16}, .blocks = 2};
  const testing::TestLayout device = testing::TestLayout::make(options, MemoryKind::kDevice);
  const testing::TestLayout host = testing::TestLayout::make(options);
  HostExecutor executor(steady_clock(), {.threads = 1});
  const Result<TransferId> refused = executor.submit({.plan = testing::plan_between(host.layout(), device.layout()),
                                                      .blocks = testing::same_blocks(1),
                                                      .done = [](TransferOutcome&& /*outcome*/) {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("from system to device memory"));
}

}  // namespace
}  // namespace cairn
