// Whole runs: what is generated is the same on any number of ranks and with any device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include "examples/engine/engine.h"
#include "examples/engine/process_ranks.h"

namespace cairn::engine {
namespace {

const std::string kProgram = EXAMPLE_ENGINE;

struct Setting {
  std::uint32_t ranks = 1;
  std::uint32_t device_blocks = 128;
  std::uint32_t step_tokens = 64;
  bool drop_device = false;
};

const std::vector<Conversation>& workload() {
  static const auto made = make_workload({.requests = 12, .turns = 3, .seed = 11});
  return made;
}

RunFigures serve(const Setting& setting, Ranks& ranks) {
  Scheduler scheduler({.device_blocks = setting.device_blocks, .step_tokens = setting.step_tokens});
  const auto figures = run_workload(workload(), scheduler, ranks, {.drop_device = setting.drop_device});
  EXPECT_TRUE(figures) << figures.error().to_string();
  EXPECT_EQ(scheduler.pool().free_blocks(), setting.device_blocks);
  return figures.value();
}

RunFigures serve_locally(const Setting& setting) {
  LocalRanks ranks({.model = {}, .ranks = setting.ranks, .device_blocks = setting.device_blocks});
  return serve(setting, ranks);
}

RunFigures serve_in_processes(const Setting& setting) {
  auto ranks =
      ProcessRanks::start(kProgram, {.model = {}, .ranks = setting.ranks, .device_blocks = setting.device_blocks});
  EXPECT_TRUE(ranks) << ranks.error().to_string();
  const RunFigures figures = serve(setting, **ranks);
  const Status stopped = (*ranks)->stop();
  EXPECT_TRUE(stopped) << stopped.error().to_string();
  return figures;
}

// Everything else is compared with this.
const RunFigures& reference() {
  static const RunFigures figures = serve_locally({});
  return figures;
}

void expect_same_text(const RunFigures& figures) {
  EXPECT_EQ(figures.requests, reference().requests);
  EXPECT_EQ(figures.generated_tokens, reference().generated_tokens);
  EXPECT_EQ(figures.token_digest, reference().token_digest);
  EXPECT_EQ(figures.logit_digest, reference().logit_digest);
}

TEST(RunTest, AnswersEveryTurn) {
  EXPECT_EQ(reference().requests, 12U);
  EXPECT_GT(reference().generated_tokens, 12U * 8);
  EXPECT_GT(reference().scheduler.prefix_hit_tokens, 0U);
  EXPECT_EQ(reference().scheduler.preemptions, 0U);
}

TEST(RunTest, DigestsTellSeedsApart) {
  LocalRanks ranks({.model = {.seed = 2}, .ranks = 1, .device_blocks = 128});
  const RunFigures other = serve({}, ranks);
  EXPECT_NE(other.token_digest, reference().token_digest);
  EXPECT_NE(other.logit_digest, reference().logit_digest);
}

TEST(RunTest, ASmallDeviceChangesNothing) {
  const RunFigures figures = serve_locally({.device_blocks = 22});
  expect_same_text(figures);
  EXPECT_GT(figures.scheduler.preemptions, 0U) << "too large a device for this test";
  EXPECT_GT(figures.scheduler.computed_tokens, reference().scheduler.computed_tokens);
}

TEST(RunTest, SmallStepsChangeNothing) { expect_same_text(serve_locally({.step_tokens = 9})); }

TEST(RunTest, DroppingTheDeviceChangesNothing) {
  const RunFigures figures = serve_locally({.drop_device = true});
  expect_same_text(figures);
  EXPECT_LT(figures.scheduler.prefix_hit_tokens, reference().scheduler.prefix_hit_tokens);
}

class RanksTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(RanksTest, ProcessesChangeNothing) { expect_same_text(serve_in_processes({.ranks = GetParam()})); }

TEST_P(RanksTest, ProcessesWithASmallDeviceChangeNothing) {
  const RunFigures figures = serve_in_processes({.ranks = GetParam(), .device_blocks = 22, .step_tokens = 40});
  expect_same_text(figures);
  EXPECT_GT(figures.scheduler.preemptions, 0U);
}

TEST_P(RanksTest, ADeadRankIsNamed) {
  const std::uint32_t last = GetParam() - 1;
  auto ranks = ProcessRanks::start(kProgram, {.model = {}, .ranks = GetParam(), .device_blocks = 64});
  ASSERT_TRUE(ranks) << ranks.error().to_string();
  ::kill((*ranks)->process(last), SIGKILL);
  Scheduler scheduler({.device_blocks = 64});
  const auto figures = run_workload(workload(), scheduler, **ranks, {});
  ASSERT_FALSE(figures);
  EXPECT_THAT(figures.error().message, testing::HasSubstr("rank " + std::to_string(last) + " of"));
  EXPECT_THAT(figures.error().message, testing::HasSubstr("killed by signal 9"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RanksTest, testing::Values(1, 2, 4));

TEST(ProcessRanksTest, ASilentRankIsNamed) {
  auto ranks = ProcessRanks::start(kProgram, {.model = {}, .ranks = 2, .device_blocks = 64}, std::chrono::seconds(1));
  ASSERT_TRUE(ranks) << ranks.error().to_string();
  ::kill((*ranks)->process(1), SIGSTOP);
  Scheduler scheduler({.device_blocks = 64});
  const auto figures = run_workload(workload(), scheduler, **ranks, {});
  ASSERT_FALSE(figures);
  EXPECT_EQ(figures.error().code, ErrorCode::kExpired);
  EXPECT_THAT(figures.error().message, testing::HasSubstr("rank 1 of 2"));
}

TEST(ProcessRanksTest, AProgramThatIsNoRankIsReported) {
  EXPECT_FALSE(ProcessRanks::start("/nowhere/engine", {}));
  const auto ranks = ProcessRanks::start("/bin/false", {});
  ASSERT_FALSE(ranks);
  EXPECT_THAT(ranks.error().message, testing::HasSubstr("ended with status 1"));
}

}  // namespace
}  // namespace cairn::engine
