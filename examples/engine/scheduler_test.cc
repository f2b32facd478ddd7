#include "examples/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace cairn::engine {
namespace {

constexpr TokenId kEnd = 999;

// Replaces the ranks: the next token is always 5, until the test ends the answer.
class SchedulerTest : public testing::Test {
 protected:
  void make(const SchedulerConfig& config) {
    scheduler_.emplace(config);
    requests_.reserve(8);
  }

  Request& submit(std::size_t prompt, std::size_t max_new_tokens, TokenId first = 1) {
    Request& request = requests_.emplace_back();
    request.id = static_cast<std::uint32_t>(requests_.size());
    request.tokens.resize(prompt);
    std::iota(request.tokens.begin(), request.tokens.end(), first);
    request.prompt_tokens = prompt;
    request.max_new_tokens = max_new_tokens;
    EXPECT_TRUE(scheduler_->submit(&request));
    return request;
  }

  // The number of rows of each step that was run.
  std::vector<std::size_t> run(std::size_t steps = 1000, TokenId next = 5) {
    std::vector<std::size_t> rows;
    for (std::size_t i = 0; i < steps && !scheduler_->idle(); ++i) {
      const StepInput& step = **scheduler_->schedule();
      check(step);
      rows.push_back(step.rows.size());
      scheduler_->update({.samples = std::vector<Sample>(step.sampled_rows.size(), {next, 1.0F}), .failed_blocks = {}});
    }
    return rows;
  }

  // No block is written to by two requests, and every row's place exists.
  static void check(const StepInput& step) {
    std::map<std::pair<DeviceBlock, std::uint32_t>, std::size_t> writers;
    for (const StepRow& row : step.rows) {
      ASSERT_LT(row.position / kBlockTokens, step.tables[row.table].size());
      const DeviceBlock block = step.tables[row.table][row.position / kBlockTokens];
      EXPECT_EQ((++writers[{block, row.position % kBlockTokens}]), 1U);
    }
  }

  std::optional<Scheduler> scheduler_;
  std::vector<Request> requests_;
};

TEST_F(SchedulerTest, CutsAPromptIntoChunks) {
  make({.device_blocks = 16, .step_tokens = 32, .end_token = kEnd});
  const Request& request = submit(70, 3);
  EXPECT_THAT(run(), testing::ElementsAre(32, 32, 6, 1, 1));
  EXPECT_EQ(request.generated.size(), 3U);
  EXPECT_EQ(request.tokens.size(), 73U);
  EXPECT_EQ(scheduler_->pool().free_blocks(), 16U);
}

TEST_F(SchedulerTest, BatchesDecodingWithPrefill) {
  make({.device_blocks = 32, .step_tokens = 32, .end_token = kEnd});
  submit(20, 4, 1);
  submit(40, 2, 100);
  EXPECT_THAT(run(), testing::ElementsAre(32, 1 + 28, 2, 1));
}

TEST_F(SchedulerTest, FindsPrefixesOfEarlierRequests) {
  make({.device_blocks = 32, .step_tokens = 64, .end_token = kEnd});
  submit(40, 1);
  run();
  submit(60, 1);
  EXPECT_THAT(run(), testing::ElementsAre(60 - 32));
  EXPECT_EQ(scheduler_->figures().prefix_hit_tokens, 32U);
}

TEST_F(SchedulerTest, ComputesTheLastTokenOfAPromptThatIsCachedWhole) {
  make({.device_blocks = 32, .step_tokens = 64, .end_token = kEnd});
  submit(32, 1);
  run();
  submit(32, 1);
  EXPECT_THAT(run(), testing::ElementsAre(16));
}

TEST_F(SchedulerTest, EndsAtTheEndToken) {
  make({.device_blocks = 8, .end_token = kEnd});
  const Request& request = submit(10, 50);
  run(2);
  run(1, kEnd);
  EXPECT_TRUE(request.finished);
  EXPECT_EQ(request.generated.size(), 3U);
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(SchedulerTest, TheLastToArriveLosesItsBlocks) {
  make({.device_blocks = 5, .step_tokens = 64, .end_token = kEnd});
  const Request& first = submit(30, 20, 1);  // grows from 2 blocks to 4
  const Request& second = submit(30, 20, 100);
  run(3);
  EXPECT_EQ(first.computed, 32U);
  EXPECT_EQ(second.computed, 32U);
  EXPECT_EQ(scheduler_->figures().preemptions, 0U);
  run(1);  // there is one block for both to grow into
  EXPECT_EQ(first.computed, 33U);
  EXPECT_EQ(second.computed, 0U);
  EXPECT_EQ(scheduler_->figures().preemptions, 1U);
  run();
  EXPECT_EQ(first.generated.size(), 20U);
  EXPECT_EQ(second.generated.size(), 20U);
  EXPECT_EQ(scheduler_->pool().free_blocks(), 5U);
}

TEST_F(SchedulerTest, RefusesWhatCanNeverRun) {
  make({.device_blocks = 4, .max_positions = 60, .end_token = kEnd});
  Request& request = requests_.emplace_back();
  request.tokens.resize(50);
  request.prompt_tokens = 50;
  request.max_new_tokens = 11;
  EXPECT_THAT(scheduler_->submit(&request).error().message, testing::HasSubstr("positions"));
  make({.device_blocks = 3, .max_positions = 100, .end_token = kEnd});
  EXPECT_THAT(scheduler_->submit(&request).error().message, testing::HasSubstr("--device-blocks"));
  EXPECT_TRUE(scheduler_->idle());
}

}  // namespace
}  // namespace cairn::engine
