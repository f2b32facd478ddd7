// Whole runs with Cairn: what is generated is the same as without it, whatever happens to blocks on their way.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "examples/engine/run_testing.h"

namespace cairn::engine {
namespace {

class TiersTest : public testing::TestWithParam<std::uint32_t> {
 protected:
  TiersTest() {
    std::filesystem::create_directories(folder_);
    config_ = plain_config();
    config_.ranks = GetParam();
    config_.processes = true;
  }
  ~TiersTest() override { std::filesystem::remove_all(folder_); }

  void use_disk() { config_.disk = (folder_ / "blocks").string(); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("cairn_engine_test_" + std::to_string(::getpid()) + "_" + std::to_string(GetParam()));
  EngineConfig config_;
};

TEST_P(TiersTest, HostMemoryBringsBackWhatTheDeviceForgot) {
  config_.host_blocks = 256;
  config_.drop_device = true;
  const RunFigures figures = run(config_);
  expect_same_text(figures);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  EXPECT_EQ(figures.tiers.missing_tokens, 0U);
  config_.host_blocks = 0;
  EXPECT_LT(figures.scheduler.computed_tokens, run(config_).scheduler.computed_tokens);
}

TEST_P(TiersTest, HostMemoryBringsBackWhatASmallDeviceHadNoRoomFor) {
  config_.host_blocks = 256;
  config_.device_blocks = 22;
  const RunFigures figures = run(config_);
  expect_same_text(figures);
  EXPECT_GT(figures.scheduler.preemptions, 0U);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
}

TEST_P(TiersTest, ADiskBelowASmallHost) {
  config_.host_blocks = 12;
  use_disk();
  config_.drop_device = true;
  const RunFigures figures = run(config_);
  expect_same_text(figures);
  EXPECT_GT(figures.tiers.loaded_tokens, 12U * kBlockTokens) << "more than the host has room for";
}

TEST_P(TiersTest, ARestartFindsWhatIsOnDisk) {
  config_.host_blocks = 64;
  use_disk();
  const RunFigures first = run(config_);
  expect_same_text(first);
  const RunFigures second = run(config_);
  expect_same_text(second);
  EXPECT_GT(second.tiers.loaded_tokens, first.tiers.loaded_tokens);
  EXPECT_LT(second.scheduler.computed_tokens, first.scheduler.computed_tokens);
}

TEST_P(TiersTest, LoadsWithinTheStep) {
  config_.host_blocks = 256;
  config_.drop_device = true;
  config_.load = LoadMode::kInStep;
  const RunFigures figures = run(config_);
  expect_same_text(figures);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  EXPECT_EQ(figures.tiers.missing_tokens, 0U);
}

// A block fails when its part on any rank does.
TEST_P(TiersTest, CopiesThatGoWrong) {
  config_.host_blocks = 64;
  use_disk();
  config_.device_blocks = 40;
  config_.drop_device = true;
  config_.faults = 0.3 / GetParam();
  const RunFigures figures = run(config_);
  expect_same_text(figures);
  EXPECT_GT(figures.tiers.loaded_tokens, 0U);
  EXPECT_GT(figures.tiers.missing_tokens, 0U) << "no fault was met";
}

// One fault is enough for all that the step loads: at this rate hardly anything comes, and what was computed with it must
// not count.
TEST_P(TiersTest, CopiesThatGoWrongWithinTheStep) {
  config_.host_blocks = 256;
  config_.drop_device = true;
  config_.faults = 0.1 / GetParam();
  config_.load = LoadMode::kInStep;
  const RunFigures figures = run(config_);
  expect_same_text(figures);
  EXPECT_GT(figures.tiers.missing_tokens, 0U) << "no fault was met";
}

INSTANTIATE_TEST_SUITE_P(Ranks, TiersTest, ranks_to_run());

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
