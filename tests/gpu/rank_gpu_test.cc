// A rank with the memory of a real GPU: copies through pinned memory and a file, layer by layer, that wait for CUDA
// events. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/memory/cuda_driver.h"
#include "cairn/memory/device_region.h"
#include "cairn/rank/rank_testing.h"
#include "cairn/rank/rank_transfers.h"
#include "cairn/transfer/cuda_step_event.h"

namespace cairn {
namespace {

using ::testing::Each;
using testing::in_time;
using testing::RankAnswers;

constexpr std::uint32_t kBlocks = 12;

class GpuRankTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<const CudaDriver*> driver = CudaDriver::get();
    if (!driver) {
      GTEST_SKIP() << driver.error().message;
    }
    driver_ = *driver;
    context_.emplace(*GpuContext::enter(0));
    make();
  }
  // One tensor per layer, with K and V separate, as in engines.
  void make() {
    ManagerConfig config = testing::rank_config(folder_.in("disk"));
    config.device.blocks = kBlocks;
    config.host.pinning = Pinning::kRequired;
    const BlockLayout::Options options{testing::kRankShape, Arrangement::kLayersKvNhd, kBlocks, 16};
    const std::vector<std::uint64_t> sizes = *BlockLayout::region_sizes(options);
    std::vector<RegionPtr> regions;
    for (const std::uint64_t size : sizes) {
      regions.push_back(*device_region({.size = size}));
    }
    device_ = *BlockLayout::make(options, std::move(regions));
    const LayoutGroups groups =
        *LayoutGroups::make(*LayerGroups::make(3, {{"all", testing::kRankShape, {0, 1, 2}}}), {device_});
    Result<RankMemory> memory = RankMemory::make(config, groups, RankClaim());
    ASSERT_TRUE(memory.has_value()) << memory.error().to_string();
    host_ = memory->layouts(CacheLevel::kG2).front();
    Result<std::unique_ptr<RankRoutes>> routes =
        RankRoutes::make(config, groups.groups(), *std::move(memory), steady_clock(), {});
    ASSERT_TRUE(routes.has_value()) << routes.error().to_string();
    work_.emplace(3, steady_clock(),
                  [this](std::uint32_t /*generation*/, const RankMessage& message) { answers_.add(message); });
    work_->use(*std::move(routes));
    work_->begin(1, LeaderId{1, 1});
  }
  TransferId ask(CacheLevel from, CacheLevel to, const std::vector<BlockPair>& pairs, StepMark not_before = {}) {
    RankTransfer copy{.id = TransferId{++last_id_},
                      .from = from,
                      .to = to,
                      .not_before = not_before,
                      .time_left = testing::kRankPatience,
                      .pairs = pairs,
                      .tags = {}};
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      copy.tags.push_back({.high = i, .low = 1});
    }
    work_->submit(copy);
    return copy.id;
  }
  std::vector<BlockSums> move(CacheLevel from, CacheLevel to, const std::vector<BlockPair>& pairs) {
    const RankTransferOutcome done = answers_.done(ask(from, to, pairs));
    EXPECT_THAT(done.states, Each(BlockState::kDone)) << done.error;
    return done.sums;
  }

  TestFolder folder_;
  const CudaDriver* driver_ = nullptr;
  std::optional<GpuContext> context_;
  BlockLayoutPtr device_;
  BlockLayoutPtr host_;
  RankAnswers answers_;
  std::uint64_t last_id_ = 0;
  std::optional<RankTransfers> work_;  // ends first
};

TEST_F(GpuRankTest, BlocksPassThroughAllTiersIntactAndLayerByLayer) {
  EXPECT_EQ(host_->kind(), MemoryKind::kPinned);
  write_pattern(*host_, 0, 11);
  write_pattern(*host_, 1, 12);
  const std::vector<BlockSums> sums = move(CacheLevel::kG2, CacheLevel::kG1, {{0, 3}, {1, 5}});
  EXPECT_EQ(move(CacheLevel::kG1, CacheLevel::kG3, {{3, 0}, {5, 9}}), sums);
  EXPECT_EQ(move(CacheLevel::kG3, CacheLevel::kG1, {{0, 1}, {9, 2}}), sums);
  const std::vector<BlockId> expected = {BlockId{7}, BlockId{8}, BlockId{9}, BlockId{10}};
  work_->expect(expected);
  EXPECT_EQ(move(CacheLevel::kG3, CacheLevel::kG1, {{0, 7}, {9, 8}}), sums);
  EXPECT_EQ(move(CacheLevel::kG2, CacheLevel::kG1, {{0, 9}, {1, 10}}), sums);
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(work_->wait_for_layer(layer, steady_clock().now()).has_value());
  }
  for (const std::uint32_t first : {1U, 7U, 9U}) {
    EXPECT_EQ(move(CacheLevel::kG1, CacheLevel::kG2, {{first, 4}, {first + 1, 5}}), sums);
    EXPECT_FALSE(find_stranger(*host_, 4, 11));
    EXPECT_FALSE(find_stranger(*host_, 5, 12));
  }
}

TEST_F(GpuRankTest, CopiesWaitForACudaEvent) {
  cuda::Stream stream = nullptr;
  cuda::Event event = nullptr;
  cuda::Pointer scratch = 0;
  constexpr std::size_t kScratch = std::size_t{4} << 30;
  ASSERT_EQ(driver_->stream_create(&stream, cuda::kStreamNonBlocking), cuda::kSuccess);
  ASSERT_EQ(driver_->event_create(&event, cuda::kEventDisableTiming), cuda::kSuccess);
  ASSERT_EQ(driver_->mem_alloc(&scratch, kScratch), cuda::kSuccess);
  for (int i = 0; i < 40; ++i) {  // some milliseconds each
    ASSERT_EQ(driver_->memset_d8_async(scratch, 1, kScratch, stream), cuda::kSuccess);
  }
  ASSERT_EQ(driver_->event_record(event, stream), cuda::kSuccess);
  const Result<StepEventPtr> step = cuda_step_event(event, 0);
  ASSERT_TRUE(step.has_value()) << step.error().to_string();
  const TransferId load = ask(CacheLevel::kG2, CacheLevel::kG1, {{0, 0}}, StepMark::begun(1));
  work_->reached(StepMark::begun(1), *step);
  EXPECT_EQ((*step)->wait_until(steady_clock().now()), StepState::kPending);
  EXPECT_FALSE(answers_.is_done(load));
  EXPECT_THAT(answers_.done(load).states, Each(BlockState::kDone));
  EXPECT_EQ((*step)->state(), StepState::kOver);
  EXPECT_EQ((*step)->wait_until(steady_clock().now()), StepState::kOver);
  EXPECT_EQ(cuda_step_event(event, 99).error().code, ErrorCode::kNotFound);
  driver_->mem_free(scratch);
  driver_->event_destroy(event);
  driver_->stream_destroy(stream);
}

TEST(CudaStepEventTest, ANullEventIsRejected) {
  EXPECT_EQ(cuda_step_event(nullptr, 0).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
