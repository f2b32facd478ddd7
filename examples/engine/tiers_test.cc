// Whole runs with Cairn: the output is the same as without it, whatever happens to blocks in flight.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "examples/engine/run_testing.h"

namespace cairn::engine {
namespace {

class TiersTest : public testing::TestWithParam<ModelAndRanks> {
 protected:
  TiersTest() {
    std::filesystem::create_directories(folder_);
    config_ = plain_config();
    config_.model = GetParam().model;
    config_.ranks = GetParam().ranks;
    config_.processes = true;
  }
  ~TiersTest() override { std::filesystem::remove_all(folder_); }

  void use_disk() { config_.disk = (folder_ / "blocks").string(); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("cairn_engine_test_" + std::to_string(::getpid()));
  EngineConfig config_;
};

TEST_P(TiersTest, HostMemoryBringsBackWhatTheDeviceForgot) {
  config_.host_blocks = 256;
  config_.drop_device = true;
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  EXPECT_EQ(figures.tiers.missing_tokens, 0U);
  config_.host_blocks = 0;
  EXPECT_LT(figures.scheduler.computed_tokens, run(config_).scheduler.computed_tokens);
}

TEST_P(TiersTest, HostMemoryBringsBackWhatASmallDeviceHadNoRoomFor) {
  config_.host_blocks = 256;
  config_.device_blocks = 22;
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.scheduler.preemptions, 0U);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
}

TEST_P(TiersTest, ADiskBelowASmallHost) {
  config_.host_blocks = 12;
  use_disk();
  config_.drop_device = true;
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.tiers.loaded_tokens, 12U * kBlockTokens) << "more than the host tier can hold";
}

TEST_P(TiersTest, ARestartFindsWhatIsOnDisk) {
  config_.host_blocks = 64;
  use_disk();
  const RunFigures first = run(config_);
  expect_same_text(first, GetParam().model);
  const RunFigures second = run(config_);
  expect_same_text(second, GetParam().model);
  EXPECT_GT(second.tiers.loaded_tokens, first.tiers.loaded_tokens);
  EXPECT_LT(second.scheduler.computed_tokens, first.scheduler.computed_tokens);
}

// The text is the same whether blocks are saved while their step computes or after it; with preemptions, with copies that
// go wrong, and with loads that fail in the step.
TEST_P(TiersTest, SavesWithinTheStep) {
  config_.host_blocks = 256;
  config_.device_blocks = 40;
  config_.drop_device = true;
  config_.in_step_save_blocks = 0;
  const RunFigures after = run(config_);
  expect_same_text(after, GetParam().model);
  EXPECT_EQ(after.tiers.saved_in_step, 0U);
  config_.in_step_save_blocks = 1;
  for (const LoadMode load : {LoadMode::kAsync, LoadMode::kInStep}) {
    for (const double faults : {0.0, 0.1}) {
      config_.load = load;
      config_.faults = faults / GetParam().ranks.count();
      const RunFigures in_step = run(config_);
      expect_same_text(in_step, GetParam().model);
      EXPECT_GT(in_step.tiers.saved_in_step, 0U);
      EXPECT_TRUE(in_step.tiers.loaded_tokens > 0 || faults > 0);
    }
  }
}

TEST_P(TiersTest, LoadsWithinTheStep) {
  config_.host_blocks = 256;
  config_.drop_device = true;
  config_.load = LoadMode::kInStep;
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  EXPECT_EQ(figures.tiers.missing_tokens, 0U);
}

// A block fails when its part on any rank does.
TEST_P(TiersTest, CopiesThatGoWrong) {
  config_.host_blocks = 64;
  use_disk();
  config_.device_blocks = 40;
  config_.drop_device = true;
  config_.faults = 0.3 / GetParam().ranks.count();
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  EXPECT_GT(figures.tiers.missing_tokens, 0U) << "no fault occurred";
}

// One fault fails the whole load of a step: at this rate hardly any load succeeds, and results computed from failed
// loads must not count.
TEST_P(TiersTest, CopiesThatGoWrongWithinTheStep) {
  config_.host_blocks = 256;
  config_.drop_device = true;
  config_.faults = 0.1 / GetParam().ranks.count();
  config_.load = LoadMode::kInStep;
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.tiers.missing_tokens, 0U) << "no fault occurred";
}

INSTANTIATE_TEST_SUITE_P(Ranks, TiersTest, ranks_to_run());

// Grids that the other tests have no time for.
class TiersOfMoreRanksTest : public TiersTest {};

TEST_P(TiersOfMoreRanksTest, ADiskBelowASmallHost) {
  config_.host_blocks = 12;
  use_disk();
  config_.drop_device = true;
  const RunFigures figures = run(config_);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.tiers.loaded_tokens, 12U * kBlockTokens) << "more than the host tier can hold";
  // A match holds nothing: a block that so small a tier evicts before its load begins is computed again.
  EXPECT_LE(20 * figures.tiers.missing_tokens, figures.tiers.loaded_tokens);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TiersOfMoreRanksTest,
                         CAIRN_SANITIZED
                             ? testing::ValuesIn(std::vector<ModelAndRanks>{{EngineModel::kGrouped, {1, 2}}})
                             : testing::ValuesIn(std::vector<ModelAndRanks>{{EngineModel::kGrouped, 2},
                                                                            {EngineModel::kGrouped, {1, 2}},
                                                                            {EngineModel::kGrouped, {4, 2}},
                                                                            {EngineModel::kFewHeads, {4, 2}}}));

// A file holds the part of a model that its name says: ranks that hold the same part under another grid go on with it. With MLA
// that is every number of tensor ranks.
TEST(TiersOfGridsTest, AnotherNumberOfTensorRanksFindsAnMlaModelsBlocks) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("cairn_engine_grids_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  EngineConfig config = plain_config();
  config.model = EngineModel::kMla;
  config.processes = true;
  config.disk = (folder / "blocks").string();
  config.host_blocks = 64;
  RunFigures before;
  for (const std::uint32_t tensor : {4U, 1U, 2U}) {
    config.ranks = tensor;
    const RunFigures figures = run(config);
    expect_same_text(figures, config.model);
    if (before.requests != 0) {
      EXPECT_LT(figures.scheduler.computed_tokens, reference(config.model).scheduler.computed_tokens);
      EXPECT_GT(figures.tiers.loaded_tokens, 0U);
      EXPECT_EQ(figures.tiers.missing_tokens, 0U) << "with " << tensor << " tensor ranks";
    }
    before = figures;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 3)
      << "the leader's file, what it learned, and one of the ranks";
  std::filesystem::remove_all(folder);
}

// The same without processes: the leader and its only rank in one.
TEST(TiersInProcessTest, HostMemoryBringsBackWhatTheDeviceForgot) {
  EngineConfig config = plain_config();
  config.host_blocks = 256;
  config.drop_device = true;
  for (const LoadMode mode : {LoadMode::kAsync, LoadMode::kInStep}) {
    config.load = mode;
    const RunFigures figures = run(config);
    expect_same_text(figures);
    EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  }
}

}  // namespace
}  // namespace cairn::engine
