// Whole runs without tiers: the output is the same on any number of ranks and with a device of any size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "examples/engine/process_ranks.h"
#include "examples/engine/run_testing.h"

namespace cairn::engine {
namespace {

TEST(RunTest, AnswersEveryTurn) {
  EXPECT_EQ(reference().requests, 9U);
  EXPECT_GT(reference().generated_tokens, 9U * 8);
  EXPECT_GT(reference().scheduler.prefix_hit_tokens, 0U);
  EXPECT_EQ(reference().scheduler.preemptions, 0U);
}

TEST(RunTest, DigestsTellSeedsApart) {
  EngineConfig config = plain_config();
  config.workload.seed = 12;
  const RunFigures other = run(config);
  EXPECT_NE(other.token_digest, reference().token_digest);
  EXPECT_NE(other.logit_digest, reference().logit_digest);
}

TEST(RunTest, ASmallDeviceChangesNothing) {
  EngineConfig config = plain_config();
  config.device_blocks = 22;
  const RunFigures figures = run(config);
  expect_same_text(figures);
  EXPECT_GT(figures.scheduler.preemptions, 0U) << "too large a device for this test";
  EXPECT_GT(figures.scheduler.computed_tokens, reference().scheduler.computed_tokens);
}

TEST(RunTest, SmallStepsChangeNothing) {
  EngineConfig config = plain_config();
  config.step_tokens = 9;
  expect_same_text(run(config));
}

TEST(RunTest, DroppingTheDeviceChangesNothing) {
  EngineConfig config = plain_config();
  config.drop_device = true;
  const RunFigures figures = run(config);
  expect_same_text(figures);
  EXPECT_LT(figures.scheduler.prefix_hit_tokens, reference().scheduler.prefix_hit_tokens);
}

TEST(RunTest, ADeviceThatIsTooSmallIsReported) {
  EngineConfig config = plain_config();
  config.device_blocks = 4;
  const auto figures = run_engine(config);
  ASSERT_FALSE(figures);
  EXPECT_THAT(figures.error().message, testing::HasSubstr("--device-blocks"));
}

class RanksTest : public testing::TestWithParam<ModelAndRanks> {};

TEST_P(RanksTest, ProcessesChangeNothing) {
  EngineConfig config = plain_config();
  config.model = GetParam().model;
  config.ranks = GetParam().ranks;
  config.processes = true;
  expect_same_text(run(config), GetParam().model);
}

TEST_P(RanksTest, ProcessesWithASmallDeviceChangeNothing) {
  EngineConfig config = plain_config();
  config.model = GetParam().model;
  config.ranks = GetParam().ranks;
  config.processes = true;
  config.device_blocks = 22;
  config.step_tokens = 40;
  const RunFigures figures = run(config);
  expect_same_text(figures, GetParam().model);
  EXPECT_GT(figures.scheduler.preemptions, 0U);
}

// Serves until a rank is lost.
Error error_of(Ranks& ranks) {
  Scheduler scheduler({.device_blocks = 64});
  const auto figures = run_workload(make_workload(plain_config().workload), scheduler, ranks, false);
  EXPECT_FALSE(figures);
  return figures ? Error() : figures.error();
}

TEST_P(RanksTest, ADeadRankIsNamed) {
  const std::uint32_t last = GetParam().ranks.count() - 1;
  const auto ranks = ProcessRanks::start(EXAMPLE_ENGINE, {.ranks = GetParam().ranks, .device_blocks = 64});
  ASSERT_TRUE(ranks) << ranks.error().to_string();
  ::kill((*ranks)->process(last), SIGKILL);
  const std::string message = error_of(**ranks).message;
  EXPECT_THAT(message, testing::HasSubstr("rank " + std::to_string(last) + " of"));
  EXPECT_THAT(message, testing::HasSubstr("killed by signal 9"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, ranks_to_run());

TEST(ProcessRanksTest, ASilentRankIsNamed) {
  const auto ranks = ProcessRanks::start(EXAMPLE_ENGINE, {.ranks = 2, .device_blocks = 64}, std::chrono::seconds(1));
  ASSERT_TRUE(ranks) << ranks.error().to_string();
  ::kill((*ranks)->process(1), SIGSTOP);
  const Error error = error_of(**ranks);
  EXPECT_EQ(error.code, ErrorCode::kExpired);
  EXPECT_THAT(error.message, testing::HasSubstr("rank 1 of 2"));
}

TEST(ProcessRanksTest, AProgramThatIsNoRankIsReported) {
  EXPECT_FALSE(ProcessRanks::start("/nowhere/engine", {}));
  const auto ranks = ProcessRanks::start("/bin/false", {});
  ASSERT_FALSE(ranks);
  EXPECT_THAT(ranks.error().message, testing::HasSubstr("ended with status 1"));
}

}  // namespace
}  // namespace cairn::engine
