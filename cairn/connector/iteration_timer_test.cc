#include "cairn/connector/iteration_timer.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

using Built = IterationTimer::Built;
using std::chrono::milliseconds;

EngineIteration prefill(std::uint64_t tokens) {
  EngineIteration work;
  work.add_prefill(0, tokens);
  return work;
}
EngineIteration decode() {
  EngineIteration work;
  work.add_decode(100, 1);
  return work;
}

TEST(IterationTimerTest, AnIterationEndsWhenTheNextOneIsBuilt) {
  IterationTimer timer;
  EXPECT_FALSE(timer.built({.number = 1, .work = prefill(100)}, milliseconds(5)).has_value());
  const auto timed = timer.built({.number = 2, .work = decode(), .runs_on_from = 1}, milliseconds(25));
  ASSERT_TRUE(timed.has_value());
  EXPECT_EQ(timed->prefill_tokens, 100U);
  EXPECT_EQ(timed->duration, milliseconds(20));
  const auto second = timer.built({.number = 7, .work = decode(), .runs_on_from = 2}, milliseconds(30));
  EXPECT_EQ(second->decode_tokens, 1U);
  EXPECT_EQ(second->duration, milliseconds(5));
}

TEST(IterationTimerTest, IdleTimeCountsForNoIteration) {
  IterationTimer timer;
  (void)timer.built({.number = 1, .work = prefill(100)}, milliseconds(0));
  EXPECT_FALSE(timer.built({.number = 2, .work = prefill(100)}, milliseconds(500)).has_value())
      << "nothing says when the first one was over";
  timer.idle(milliseconds(520));
  const auto timed = timer.built({.number = 3, .work = prefill(200)}, milliseconds(900));
  ASSERT_TRUE(timed.has_value());
  EXPECT_EQ(timed->duration, milliseconds(20));
  EXPECT_FALSE(timer.built({.number = 4}, milliseconds(950)).has_value()) << "the end was said of an earlier one";
}

TEST(IterationTimerTest, WhatWaitsForLoadsIsNotTimed) {
  IterationTimer timer;
  (void)timer.built({.number = 1, .work = prefill(100), .waits = true}, milliseconds(0));
  EXPECT_FALSE(timer.built({.number = 2, .work = decode(), .runs_on_from = 1}, milliseconds(9)).has_value());
  EXPECT_TRUE(timer.built({.number = 3, .work = decode(), .runs_on_from = 2}, milliseconds(12)).has_value());
}

TEST(IterationTimerTest, WithSchedulingAheadTheTimeIsThatOfTheIterationBefore) {
  // Each is built when the one before the last is over: 10 ms of decoding, one prefill of 50 ms.
  IterationTimer timer;
  (void)timer.built({.number = 1, .work = decode()}, milliseconds(0));
  (void)timer.built({.number = 2, .work = decode(), .runs_on_from = 1, .is_ahead = true}, milliseconds(0));
  (void)timer.built({.number = 3, .work = prefill(100), .runs_on_from = 2, .is_ahead = true}, milliseconds(10));
  (void)timer.built({.number = 4, .work = decode(), .runs_on_from = 3, .is_ahead = true}, milliseconds(20));
  const auto of_third =
      timer.built({.number = 5, .work = decode(), .runs_on_from = 4, .is_ahead = true}, milliseconds(70));
  ASSERT_TRUE(of_third.has_value());
  EXPECT_EQ(of_third->prefill_tokens, 100U);
  EXPECT_EQ(of_third->duration, milliseconds(50));
  const auto of_fourth =
      timer.built({.number = 6, .work = decode(), .runs_on_from = 5, .is_ahead = true}, milliseconds(80));
  EXPECT_EQ(of_fourth->duration, milliseconds(10));
}

TEST(IterationTimerTest, AChunkTellsNotWhetherTheEngineSchedulesAhead) {
  IterationTimer timer;
  (void)timer.built({.number = 1, .work = decode()}, milliseconds(0));
  (void)timer.built({.number = 2, .work = decode(), .runs_on_from = 1, .is_ahead = true}, milliseconds(0));
  (void)timer.built({.number = 3, .work = prefill(10), .runs_on_from = 2}, milliseconds(10));
  const auto timed = timer.built({.number = 4, .work = prefill(20), .runs_on_from = 3}, milliseconds(21));
  EXPECT_EQ(timed->decode_tokens, 1U) << "of iteration 2";
  EXPECT_EQ(timed->duration, milliseconds(11));
}

// Two batches by turns, as with pipeline parallelism: a request runs in every second iteration.
TEST(IterationTimerTest, WithAPipelineAnIterationTakesUntilItsRequestsRunAgain) {
  IterationTimer timer;
  EXPECT_FALSE(timer.built({.number = 1, .work = prefill(100)}, milliseconds(0)).has_value());
  EXPECT_FALSE(timer.built({.number = 2, .work = prefill(100)}, milliseconds(1)).has_value()) << "the pipeline fills";
  EXPECT_FALSE(timer.built({.number = 3, .work = prefill(100), .runs_on_from = 1}, milliseconds(20)).has_value())
      << "the request may have been passed over";
  for (std::uint64_t number = 4; number < 9; ++number) {
    const auto timed = timer.built({.number = number, .work = prefill(100), .runs_on_from = number - 2},
                                   number == 4 ? milliseconds(21) : milliseconds(10 * number - 10));
    ASSERT_TRUE(timed.has_value());
    EXPECT_EQ(timed->prefill_tokens, 100U);
    EXPECT_EQ(timed->duration, number == 5 ? milliseconds(20) : number == 6 ? milliseconds(29) : milliseconds(20));
  }
  // The other batch has ended.
  timer.idle(milliseconds(95));
  const auto last = timer.built({.number = 9, .work = decode()}, milliseconds(500));
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->duration, milliseconds(25));
}

TEST(IterationTimerTest, WhatWaitedForALargerPrefillInThePipelineIsNotTimed) {
  IterationTimer timer;
  std::uint64_t counted = 0;
  for (std::uint64_t number = 1; number < 20; ++number) {
    const EngineIteration work = number % 2 == 0 ? prefill(1000) : decode();
    const std::optional<std::uint64_t> from = number > 2 ? std::optional(number - 2) : std::nullopt;
    const auto timed = timer.built({.number = number, .work = work, .runs_on_from = from}, milliseconds(50 * number));
    if (timed) {
      ++counted;
      EXPECT_EQ(timed->prefill_tokens, 1000U);
      EXPECT_EQ(timed->duration, milliseconds(100));
    }
  }
  EXPECT_EQ(counted, 8U);
}

TEST(IterationTimerTest, ARequestThatWasPassedOverOnceTellsNothing) {
  IterationTimer timer;
  (void)timer.built({.number = 1, .work = prefill(100)}, milliseconds(0));
  (void)timer.built({.number = 2, .work = decode(), .runs_on_from = 1}, milliseconds(20));
  (void)timer.built({.number = 3}, milliseconds(30));
  EXPECT_FALSE(timer.built({.number = 4, .work = decode(), .runs_on_from = 2}, milliseconds(900)).has_value());
}

TEST(IterationTimerTest, WhatTheEngineMeasuresCountsAlone) {
  IterationTimer timer;
  (void)timer.built({.number = 1, .work = prefill(100)}, milliseconds(0));
  (void)timer.built({.number = 2, .work = decode(), .runs_on_from = 1}, milliseconds(1));
  const auto measured = timer.measured(1, milliseconds(33));
  ASSERT_TRUE(measured.has_value());
  EXPECT_EQ(measured->prefill_tokens, 100U);
  EXPECT_EQ(measured->duration, milliseconds(33));
  EXPECT_FALSE(timer.measured(99, milliseconds(1)).has_value());
  EXPECT_FALSE(timer.built({.number = 3, .work = decode(), .runs_on_from = 2}, milliseconds(50)).has_value());
  for (std::uint64_t number = 4; number < 20; ++number) {
    (void)timer.built({.number = number, .work = decode()}, milliseconds(60));
  }
  EXPECT_FALSE(timer.measured(3, milliseconds(1)).has_value()) << "too long ago";
  EXPECT_TRUE(timer.measured(19, milliseconds(1)).has_value());
}

}  // namespace
}  // namespace cairn
