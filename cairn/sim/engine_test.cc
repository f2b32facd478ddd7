#include "cairn/sim/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/sim/replay.h"

namespace cairn::sim {
namespace {

using ::testing::HasSubstr;

// One engine with blocks of 4 tokens; prefill takes 1 ms per token, a decode step 10 ms.
class EngineTest : public ::testing::Test {
 protected:
  static EngineOptions small(std::uint32_t blocks, Profile profile = Profile::kStrict) {
    return {.blocks = blocks,
            .block_size = 4,
            .profile = profile,
            .max_num_seqs = 8,
            .max_num_batched_tokens = 16,
            .costs = *CostModel::parse("prefill,0,0\nprefill,1000,1000\ndecode,0,10\ndecode,1000,10\n")};
  }
  void make(const EngineOptions& options) { engine_ = *Engine::create(options, 1, recorder_, nullptr); }
  void submit(std::uint64_t number, Token token, std::uint32_t input, std::uint64_t output) {
    const TokenRun run{token, input};
    engine_->submit({.number = number}, *Prompt::hashed({&run, 1}, 4), output, now_);
  }
  // Runs a pass; returns its milliseconds.
  std::int64_t pass() {
    const TimePoint end = engine_->run_pass(now_, now_);
    const std::int64_t ms = (end - now_) / std::chrono::milliseconds(1);
    now_ = end;
    engine_->cache().check_invariants();
    return ms;
  }
  void run_to_the_end() {
    for (int i = 0; i < 100'000 && engine_->has_requests(); ++i) {
      now_ = engine_->run_pass(now_, TimePoint::max());
    }
    EXPECT_FALSE(engine_->has_requests());
  }
  Report report() const { return recorder_.report(); }
  static double ms(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

  Recorder recorder_;
  std::unique_ptr<Engine> engine_;
  TimePoint now_{0};
};

TEST_F(EngineTest, APromptGeneratesItsFirstTokenInThePassThatCompletesIt) {
  make(small(16));
  submit(0, 1, 10, 3);
  EXPECT_EQ(pass(), 10 + 10);
  EXPECT_EQ(engine_->cache().num_active_blocks(), 3U);
  EXPECT_EQ(pass(), 10);
  EXPECT_TRUE(engine_->finished().empty());
  EXPECT_EQ(pass(), 10);
  ASSERT_EQ(engine_->finished().size(), 1U);
  EXPECT_FALSE(engine_->has_requests());
  EXPECT_EQ(engine_->cache().num_active_blocks(), 0U);
  const RequestFigures figures = report().requests[0];
  EXPECT_EQ(ms(figures.first_token), 20);
  EXPECT_EQ(ms(figures.second_token), 30);
  EXPECT_EQ(ms(figures.last_token), 40);
  EXPECT_EQ(figures.output_tokens, 3U);
}

TEST_F(EngineTest, ALongPromptTakesSeveralPasses) {
  make(small(16));
  submit(0, 1, 40, 1);
  EXPECT_EQ(pass(), 16);
  EXPECT_EQ(pass(), 16);
  EXPECT_EQ(pass(), 8 + 10);
  EXPECT_EQ(report().counts.passes, 3U);
  EXPECT_EQ(report().counts.computed_tokens, 40U);
}

TEST_F(EngineTest, WithoutChunksAPromptWaitsForAPassItFitsInto) {
  EngineOptions options = small(32);
  options.chunked_prefill = false;
  make(options);
  submit(0, 1, 10, 5);
  submit(1, 2, 10, 5);
  EXPECT_EQ(pass(), 10 + 10) << "the second does not fit beside the first";
  EXPECT_EQ(pass(), 10 + 10);
  EXPECT_THAT(Engine::check_fits(options, 17, 1).error().message, HasSubstr("does not fit into a pass of 16"));
}

TEST_F(EngineTest, RunningRequestsComeBeforeWaitingOnes) {
  make(small(16));
  submit(0, 1, 10, 5);
  EXPECT_EQ(pass(), 20);
  submit(1, 2, 20, 1);
  EXPECT_EQ(pass(), 15 + 10) << "15 tokens are left beside the one of the first";
  EXPECT_EQ(pass(), 5 + 10);
}

TEST_F(EngineTest, NoMoreThanMaxNumSeqsRun) {
  EngineOptions options = small(16);
  options.max_num_seqs = 1;
  make(options);
  submit(0, 1, 4, 2);
  submit(1, 2, 4, 2);
  EXPECT_EQ(pass(), 4 + 10);
  EXPECT_EQ(pass(), 10);
  EXPECT_EQ(engine_->finished().size(), 1U);
  EXPECT_EQ(pass(), 4 + 10);
}

TEST_F(EngineTest, CachedTokensAreNotComputed) {
  make(small(16));
  submit(0, 1, 10, 1);
  run_to_the_end();
  submit(1, 1, 10, 1);
  EXPECT_EQ(pass(), 2 + 10) << "two full blocks are cached";
  const Report now = report();
  EXPECT_EQ(now.requests[1].reused_tokens, 8U);
  EXPECT_EQ(now.counts.saved_tokens, 8U);
  EXPECT_DOUBLE_EQ(now.reused_ratio(), 0.4);
}

TEST_F(EngineTest, ACompletelyCachedPromptCostsOneTokenOrNothing) {
  for (const Profile profile : {Profile::kStrict, Profile::kSeed}) {
    make(small(16, profile));
    submit(0, 1, 8, 1);
    run_to_the_end();
    submit(1, 1, 8, 1);
    EXPECT_EQ(pass(), profile == Profile::kStrict ? 1 + 10 : 10);
  }
}

TEST_F(EngineTest, TheSeedCountsPrefillInWholeMeans) {
  for (const Profile profile : {Profile::kStrict, Profile::kSeed}) {
    make(small(16, profile));
    submit(0, 1, 4, 2);
    submit(1, 2, 5, 2);
    // 2 * (9 / 2 - 0) in whole numbers
    EXPECT_EQ(pass(), (profile == Profile::kStrict ? 9 : 8) + 10);
  }
}

TEST_F(EngineTest, WithoutPrefixCachingNothingIsReused) {
  EngineOptions options = small(16);
  options.prefix_caching = false;
  make(options);
  submit(0, 1, 8, 1);
  run_to_the_end();
  submit(1, 1, 8, 1);
  EXPECT_EQ(pass(), 8 + 10);
}

TEST_F(EngineTest, TheLastAdmittedRequestIsPreemptedAndKeepsItsTokens) {
  make(small(4));
  submit(0, 1, 8, 6);  // 2 blocks, and 2 more as it generates
  submit(1, 2, 7, 6);  // 2 blocks, and 2 more
  EXPECT_EQ(pass(), 15 + 10);
  EXPECT_EQ(report().counts.preemptions, 1U) << "the first token of the first request preempted the second request";
  run_to_the_end();
  const Report now = report();
  EXPECT_EQ(now.counts.completed, 2U);
  EXPECT_EQ(now.counts.output_tokens, 12U);
  EXPECT_LT(now.requests[0].last_token, now.requests[1].last_token);
}

TEST_F(EngineTest, AWaitingRequestPreemptsInSeedAndWaitsInStrict) {
  for (const Profile profile : {Profile::kStrict, Profile::kSeed}) {
    recorder_ = Recorder();
    make(small(4, profile));
    submit(0, 1, 9, 3);  // 3 blocks
    EXPECT_EQ(pass(), 9 + 10);
    submit(1, 2, 8, 3);  // 2 blocks
    static_cast<void>(pass());
    EXPECT_EQ(report().counts.preemptions, profile == Profile::kStrict ? 0U : 1U);
    run_to_the_end();
    EXPECT_EQ(report().counts.completed, 2U);
  }
}

TEST_F(EngineTest, ALivelockIsReportedAndEnds) {
  make(small(6, Profile::kSeed));
  submit(0, 1, 20, 2);
  submit(1, 2, 20, 2);
  run_to_the_end();
  EXPECT_EQ(report().counts.completed, 2U);
  EXPECT_EQ(report().counts.livelocks, 1U);
}

TEST_F(EngineTest, ALongPromptInSmallPiecesIsNoLivelock) {
  EngineOptions options = small(2'000, Profile::kSeed);
  options.max_num_batched_tokens = 2;
  make(options);
  submit(0, 1, 5'000, 1);
  run_to_the_end();
  EXPECT_EQ(report().counts.passes, 2'500U);
  EXPECT_EQ(report().counts.livelocks, 0U);
}

TEST_F(EngineTest, ManyPassesInOneCallGiveTheSameResult) {
  EngineOptions options = small(64);
  Recorder one_by_one;
  const auto run = [&](Recorder& recorder, bool together) {
    const std::unique_ptr<Engine> engine = *Engine::create(options, 1, recorder, nullptr);
    for (std::uint64_t i = 0; i < 6; ++i) {
      const TokenRun tokens{static_cast<Token>(i), static_cast<std::uint32_t>(5 + 3 * i)};
      engine->submit({.number = i}, *Prompt::hashed({&tokens, 1}, 4), 3 + 11 * i, TimePoint(0));
    }
    TimePoint now(0);
    while (engine->has_requests()) {
      now = engine->run_pass(now, together ? TimePoint::max() : now);
    }
    return now;
  };
  Recorder together;
  EXPECT_EQ(run(one_by_one, false), run(together, true));
  const Report a = one_by_one.report();
  const Report b = together.report();
  EXPECT_EQ(a.counts.passes, b.counts.passes);
  EXPECT_EQ(a.counts.output_tokens, b.counts.output_tokens);
  EXPECT_EQ(a.latencies.itl_ms.count, b.latencies.itl_ms.count);
  EXPECT_EQ(a.latencies.itl_ms.mean, b.latencies.itl_ms.mean);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(a.requests[i].last_token, b.requests[i].last_token);
  }
}

TEST_F(EngineTest, ABudgetBelowTheNumberOfRequestsLetsSomeWait) {
  EngineOptions options = small(64);
  options.max_num_batched_tokens = 3;
  make(options);
  for (std::uint64_t i = 0; i < 5; ++i) {
    submit(i, static_cast<Token>(i), 3, 9);
  }
  run_to_the_end();
  const Report now = report();
  EXPECT_EQ(now.counts.completed, 5U);
  EXPECT_EQ(now.counts.output_tokens, 45U);
  EXPECT_EQ(now.latencies.itl_ms.count, 40U);
}

TEST_F(EngineTest, CheckFitsNamesWhatCanNeverFit) {
  const EngineOptions options = small(4);
  EXPECT_TRUE(Engine::check_fits(options, 10, 6));
  EXPECT_THAT(Engine::check_fits(options, 10, 7).error().message,
              HasSubstr("17 tokens take 5 blocks of 4, and a worker has 4"));
  EngineOptions none = small(4);
  none.max_num_seqs = 0;
  EXPECT_FALSE(Engine::create(none, 1, recorder_, nullptr));
}

}  // namespace
}  // namespace cairn::sim
