#include "cairn/connector/worker_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cairn/connector/worker_steps_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::blocks_of;
using ::testing::ElementsAre;
using testing::encoded;
using testing::fenced_operation;
using ::testing::HasSubstr;
using testing::is_pending;
using ::testing::IsEmpty;
using testing::load_of;
using testing::operation;
using testing::save_of;
using testing::ScriptedRank;
using ::testing::SizeIs;

constexpr std::uint32_t kLayers = 3;
constexpr std::uint32_t kBlocks = 64;

class TestEvent final : public StepEvent {
 public:
  [[nodiscard]] StepState state() override { return now; }
  [[nodiscard]] StepState wait_until(TimePoint /*deadline*/) override { return now; }
  StepState now = StepState::kPending;
};

class WorkerStepsTest : public ::testing::Test {
 protected:
  Status bind(const IterationMetadata& metadata) { return steps_.bind(encoded(metadata)); }
  void bind_and_start(const IterationMetadata& metadata) {
    ASSERT_TRUE(bind(metadata));
    ASSERT_TRUE(steps_.start_load({}));
  }
  void tell(const OperationOutcomes& outcomes) { operations_.receive({}, outcomes.encode()); }
  // Called on the n-th poll while the steps wait.
  void at_look(int n, const std::function<void()>& what) {
    rank_.on_state = [this, n, what, from = rank_.asked] {
      if (rank_.asked == from + n) {
        what();
      }
    };
  }
  void let_time_pass(Duration at_each_look) {
    rank_.on_state = [this, at_each_look] { clock_.advance(at_each_look); };
  }

  ManualClock clock_;
  ScriptedRank rank_;
  WorkerOperations operations_{clock_};
  WorkerSteps steps_{rank_,
                     operations_,
                     {.layers = kLayers,
                      .blocks = kBlocks,
                      .clock = &clock_,
                      .fence_limit = milliseconds(200),
                      .layer_limit = seconds(10),
                      .answer_limit = seconds(60)}};
};

ErrorCode code_of(const Status& status) {
  EXPECT_FALSE(status) << "accepted";
  return status ? ErrorCode::kCancelled : status.error().code;
}

std::vector<BlockId> all_blocks() {
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(BlockId{i});
  }
  return blocks;
}

// --- the order of a step ---

TEST_F(WorkerStepsTest, NothingGoesBeforeTheFirstBind) {
  EXPECT_EQ(code_of(steps_.start_load({})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_layer(0, {})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  EXPECT_THAT(rank_.marks, IsEmpty());
}

TEST_F(WorkerStepsTest, AStepTellsTheRankHowFarTheEngineIs) {
  const auto first = std::make_shared<TestEvent>();
  const auto second = std::make_shared<TestEvent>();
  ASSERT_TRUE(bind({.iteration = 7}));
  ASSERT_TRUE(steps_.start_load(first));
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_TRUE(steps_.wait_for_layer(layer));
  }
  ASSERT_TRUE(steps_.save_step(second));
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  EXPECT_THAT(rank_.marks, ElementsAre(ScriptedRank::Mark{StepMark::begun(7), first},
                                       ScriptedRank::Mark{StepMark::computed(7), second}));
}

// A step with nothing to do makes no call to the rank but its marks.
TEST_F(WorkerStepsTest, AStepWithoutWorkIsOnlyMarked) {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    bind_and_start({.iteration = i});
    EXPECT_TRUE(steps_.wait_for_layer(0));
    EXPECT_TRUE(steps_.save_step({}));
    EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  }
  EXPECT_EQ(rank_.asked, 1) << "the first bind reads which leader it has joined";
  EXPECT_THAT(rank_.expected, IsEmpty());
  EXPECT_THAT(rank_.layers, IsEmpty());
  EXPECT_THAT(rank_.fences, IsEmpty());
  EXPECT_THAT(rank_.marks, SizeIs(6));
}

TEST_F(WorkerStepsTest, CallsOutOfOrderAreRefused) {
  ASSERT_TRUE(bind({.iteration = 1}));
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_layer(0, {})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  ASSERT_TRUE(steps_.start_load({}));
  EXPECT_EQ(code_of(steps_.start_load({})), ErrorCode::kFailedPrecondition);
  ASSERT_TRUE(steps_.save_step({}));
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_layer(0, {})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kFailedPrecondition);
  (void)steps_.take_outcomes();
  EXPECT_EQ(code_of(steps_.start_load({})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(rank_.marks, SizeIs(2));
}

TEST_F(WorkerStepsTest, AStepWithoutAForwardPassIsLegal) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5})}});
  tell({.loads = {{operation(1), 1}}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, true}}}));
  bind_and_start({.iteration = 2});
  EXPECT_THAT(rank_.marks,
              ElementsAre(ScriptedRank::Mark{StepMark::begun(1), {}}, ScriptedRank::Mark{StepMark::begun(2), {}}));
}

TEST_F(WorkerStepsTest, OutcomesThatWereNotTakenAreNotLost) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5, 6})}});
  tell({.loads = {{operation(1), 1}}});
  ASSERT_TRUE(bind({.iteration = 2, .saves = {save_of(2, {7})}}));
  tell({.saves = {operation(2)}});
  bind_and_start({.iteration = 3});
  EXPECT_EQ(steps_.take_outcomes(),
            (WorkerOutcomes{.loaded = {{1U, false}}, .saved = {2U}, .failed_blocks = blocks_of({6})}));
}

// The engine may take outcomes between bind() and start_load() and while it idles; that ends no step.
TEST_F(WorkerStepsTest, AReportCanBeTakenAtAnyTime) {
  ASSERT_TRUE(bind({.iteration = 1, .loads = {load_of(1, {5}, true)}}));
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes()) << "and does not wait for loads that have not begun";
  ASSERT_TRUE(steps_.start_load({}));
  tell({.loads = {{operation(1), 1}}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, true}}}));
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
}

// --- events ---

TEST_F(WorkerStepsTest, LayersEndTheStepInAnyOrderWithAllTheirEvents) {
  std::vector<std::shared_ptr<TestEvent>> events;
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    events.push_back(std::make_shared<TestEvent>());
  }
  bind_and_start({.iteration = 1});
  ASSERT_TRUE(steps_.save_layer(2, events[2]));
  ASSERT_TRUE(steps_.save_layer(0, events[0]));
  EXPECT_THAT(rank_.marks, SizeIs(1)) << "one is missing";
  ASSERT_TRUE(steps_.save_layer(1, events[1]));
  ASSERT_THAT(rank_.marks, SizeIs(2));
  EXPECT_EQ(rank_.marks.back().mark, StepMark::computed(1));
  StepEvent& all = *rank_.marks.back().after;
  for (const std::uint32_t layer : {1U, 0U, 2U}) {
    EXPECT_EQ(all.state(), StepState::kPending);
    EXPECT_EQ(all.wait_until({}), StepState::kPending);
    events[layer]->now = StepState::kOver;
  }
  EXPECT_EQ(all.state(), StepState::kOver);
  EXPECT_EQ(all.wait_until({}), StepState::kOver);
  events[1]->now = StepState::kFailed;
  EXPECT_EQ(all.state(), StepState::kFailed);
  EXPECT_EQ(all.wait_until({}), StepState::kFailed);
  EXPECT_TRUE(steps_.save_step({})) << "the step has already ended";
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(rank_.marks, SizeIs(2));
}

TEST_F(WorkerStepsTest, OneEventForAllLayersIsPassedOn) {
  const auto event = std::make_shared<TestEvent>();
  bind_and_start({.iteration = 1});
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_TRUE(steps_.save_layer(layer, event));
  }
  EXPECT_EQ(rank_.marks.back(), (ScriptedRank::Mark{StepMark::computed(1), event}));
}

TEST_F(WorkerStepsTest, ALayerIsSavedOnceAStep) {
  bind_and_start({.iteration = 1});
  ASSERT_TRUE(steps_.save_layer(1, {}));
  const Status again = steps_.save_layer(1, {});
  EXPECT_EQ(code_of(again), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(again.error().message, HasSubstr("layer 1"));
  EXPECT_EQ(code_of(steps_.save_layer(kLayers, {})), ErrorCode::kOutOfRange);
  EXPECT_EQ(code_of(steps_.wait_for_layer(kLayers)), ErrorCode::kOutOfRange);
  bind_and_start({.iteration = 2});
  EXPECT_TRUE(steps_.save_layer(1, {}));
}

TEST_F(WorkerStepsTest, AStepWithLayersThatAreNotSavedIsEndedByTheEngine) {
  const auto layer = std::make_shared<TestEvent>();
  const auto step = std::make_shared<TestEvent>();
  step->now = StepState::kOver;
  bind_and_start({.iteration = 1});
  ASSERT_TRUE(steps_.save_layer(0, layer));
  ASSERT_TRUE(steps_.save_step(step));
  EXPECT_EQ(rank_.marks.back().mark, StepMark::computed(1));
  EXPECT_EQ(rank_.marks.back().after->state(), StepState::kPending) << "the layer's event counts too";
  layer->now = StepState::kOver;
  EXPECT_EQ(rank_.marks.back().after->state(), StepState::kOver);
}

// --- loads in the step ---

TEST_F(WorkerStepsTest, LayersOfLoadsInTheStepAreWaitedFor) {
  ASSERT_TRUE(bind({.iteration = 1, .loads = {load_of(1, {5, 6}, true), load_of(2, {7}), load_of(3, {8}, true)}}));
  EXPECT_THAT(rank_.expected, ElementsAre(blocks_of({5, 6, 8})));
  EXPECT_THAT(rank_.marks, IsEmpty()) << "the loads are expected before the step is started";
  ASSERT_TRUE(steps_.start_load({}));
  EXPECT_TRUE(steps_.wait_for_layer(0));
  EXPECT_TRUE(steps_.wait_for_layer(1));
  EXPECT_THAT(rank_.layers, ElementsAre(0U, 1U));
  tell({.loads = {{operation(1), 2}, {operation(3), 1}}});
  EXPECT_TRUE(steps_.wait_for_layer(2)) << "all blocks are loaded and verified";
  EXPECT_THAT(rank_.layers, SizeIs(2));
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, true}, {3U, true}}}));
  // The next step expects nothing, and waits for nothing.
  bind_and_start({.iteration = 2});
  bind_and_start({.iteration = 3});
  EXPECT_THAT(rank_.expected, ElementsAre(blocks_of({5, 6, 8}), IsEmpty()));
  EXPECT_TRUE(steps_.wait_for_layer(0));
  EXPECT_THAT(rank_.layers, SizeIs(2));
}

// The engine continued without the blocks that lack the layer, and may have read them too early; the others are valid.
TEST_F(WorkerStepsTest, ALayerThatDoesNotComeFailsTheLoadsThatLackIt) {
  bind_and_start(
      {.iteration = 1,
       .loads = {load_of(1, {5}, true), load_of(2, {6, 8, 9}, true), load_of(3, {7}), load_of(4, {10}, true)}});
  EXPECT_TRUE(steps_.wait_for_layer(0));
  rank_.on_layer = [](std::uint32_t, TimePoint) { return fail(ErrorCode::kUnavailable, "gone"); };
  rank_.lacks = blocks_of({8, 10});
  const Status second = steps_.wait_for_layer(1);
  EXPECT_EQ(code_of(second), ErrorCode::kUnavailable);
  EXPECT_EQ(second.error().message, "layer 1 of iteration 1: gone");
  EXPECT_EQ(rank_.passed_over, blocks_of({8, 10})) << "nothing waits for them any longer";
  rank_.on_layer = {};
  rank_.lacks.clear();
  EXPECT_TRUE(steps_.wait_for_layer(2)) << "later layers of the other blocks are still waited for";
  EXPECT_THAT(rank_.layers, ElementsAre(0U, 1U, 2U));
  tell({.loads = {{operation(1), 1}, {operation(2), 3}, {operation(3), 1}, {operation(4), 1}}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, true}, {2U, false}, {3U, true}, {4U, false}},
                                                    .failed_blocks = blocks_of({8, 9, 10})}));
  // The next step is not affected.
  bind_and_start({.iteration = 2, .loads = {load_of(5, {8}, true)}});
  EXPECT_TRUE(steps_.wait_for_layer(0));
  tell({.loads = {{operation(5), 1}}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{5U, true}}}));
}

// The leader knows that the load is short; this rank may never get to know.
TEST_F(WorkerStepsTest, ALoadThatFallsShortDoesNotKeepTheOthersFromComing) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5, 6}, true), load_of(2, {7}, true)}});
  int looks = 0;
  rank_.on_layer = [&](std::uint32_t, TimePoint) -> Status {
    if (++looks == 1) {
      tell({.loads = {{operation(1), 1}}});
      return fail(ErrorCode::kExpired, "late");
    }
    EXPECT_EQ(rank_.passed_over, blocks_of({6}));
    return {};
  };
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kUnavailable)
      << "once the layer of the other load has arrived";
  EXPECT_EQ(looks, 2);
  tell({.loads = {{operation(2), 1}}});
  EXPECT_EQ(steps_.take_outcomes(),
            (WorkerOutcomes{.loaded = {{1U, false}, {2U, true}}, .failed_blocks = blocks_of({6})}));
}

TEST_F(WorkerStepsTest, ALayerIsWaitedForUpToItsLimit) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5}, true)}});
  rank_.on_layer = [this](std::uint32_t, TimePoint deadline) {
    clock_.advance(std::max(Duration(deadline - clock_.now()), Duration(seconds(3))));
    return fail(ErrorCode::kExpired, "late");
  };
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kExpired);
  EXPECT_EQ(clock_.now(), seconds(12));
}

// The rank does not know the load: it never got a copy of it.
TEST_F(WorkerStepsTest, ALoadThatFailedBeforeItBeganEndsTheWait) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5}, true)}});
  rank_.on_layer = [this](std::uint32_t, TimePoint) {
    tell({.loads = {{operation(1), 0}}});
    return fail(ErrorCode::kExpired, "late");
  };
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kUnavailable);
  EXPECT_THAT(rank_.layers, SizeIs(1));
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5})}));
  // The same if the outcomes came before the metadata.
  tell({.loads = {{operation(2), 0}}});
  bind_and_start({.iteration = 2, .loads = {load_of(2, {6}, true)}});
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kUnavailable);
  EXPECT_THAT(rank_.layers, SizeIs(1));
}

TEST_F(WorkerStepsTest, AReportWaitsForLoadsOfTheStep) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5, 6}, true), load_of(2, {7})}});
  at_look(4, [this] { tell({.loads = {{operation(1), 1}}}); });
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({6})}));
  EXPECT_TRUE(is_pending(operations_, operation(2))) << "nobody computes with it yet";
}

TEST_F(WorkerStepsTest, ALoadOfTheStepThatIsNotKnownInTimeHasFailedForGood) {
  bind_and_start({.iteration = 4, .loads = {load_of(1, {5, 6}, true)}});
  let_time_pass(seconds(3));
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5, 6})}));
  EXPECT_GE(clock_.now(), seconds(10));
  ASSERT_THAT(rank_.fences, SizeIs(1)) << "later copies of it are refused";
  EXPECT_EQ(rank_.fences[0].blocks, blocks_of({5, 6}));
  EXPECT_EQ(rank_.fences[0].overwritten_in, StepMark::begun(5));
  tell({.loads = {{operation(1), 2}}});
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
}

// --- fences ---

TEST_F(WorkerStepsTest, BindWaitsUntilFencedSavesHaveEnded) {
  bind_and_start({.iteration = 1, .saves = {save_of(1, {5, 6}), save_of(2, {7})}});
  at_look(3, [this] { tell({.saves = {operation(1)}}); });
  ASSERT_TRUE(bind({.iteration = 2, .fences = {fenced_operation(operation(1), blocks_of({5, 6}))}}));
  EXPECT_FALSE(is_pending(operations_, operation(1)));
  EXPECT_TRUE(is_pending(operations_, operation(2)));
  EXPECT_THAT(rank_.fences, ElementsAre(ScriptedRank::Fence{blocks_of({5, 6}), StepMark::begun(2), milliseconds(200)}));
}

TEST_F(WorkerStepsTest, SavesThatHaveNotEndedByTheLimitAreFencedByTheRank) {
  bind_and_start({.iteration = 1, .saves = {save_of(1, {5})}});
  let_time_pass(milliseconds(60));
  // Also a save that starts only now, of blocks that are overwritten at once.
  ASSERT_TRUE(bind(
      {.iteration = 2,
       .saves = {save_of(2, {6})},
       .fences = {fenced_operation(operation(1), blocks_of({5})), fenced_operation(operation(2), blocks_of({6}))}}));
  ASSERT_THAT(rank_.fences, SizeIs(1));
  EXPECT_EQ(rank_.fences[0].blocks, blocks_of({5, 6}));
  EXPECT_EQ(rank_.fences[0].overwritten_in, StepMark::begun(2));
  EXPECT_GE(clock_.now(), milliseconds(200));
  EXPECT_LT(clock_.now(), milliseconds(400));
  EXPECT_THAT(rank_.marks, SizeIs(1)) << "before the step begins";
}

TEST_F(WorkerStepsTest, WithoutALeaderFencesAreNotWaitedFor) {
  bind_and_start({.iteration = 1, .saves = {save_of(1, {5})}});
  rank_.now.is_connected = false;
  ASSERT_TRUE(bind({.iteration = 2, .fences = {fenced_operation(operation(1), blocks_of({5}))}}));
  EXPECT_EQ(clock_.now(), Duration(0));
  EXPECT_THAT(rank_.fences, ElementsAre(ScriptedRank::Fence{blocks_of({5}), StepMark::begun(2), milliseconds(200)}));
}

// A save that is unknown to this worker may still have a copy here.
TEST_F(WorkerStepsTest, AFenceOfAnUnknownSaveIsTheRanksAlone) {
  ASSERT_TRUE(bind({.iteration = 2, .fences = {fenced_operation(operation(9), blocks_of({5}))}}));
  EXPECT_THAT(rank_.fences, ElementsAre(ScriptedRank::Fence{blocks_of({5}), StepMark::begun(2), milliseconds(200)}));
}

// --- bad metadata ---

// It is unknown which blocks the engine overwrites in such a step: a save that reads them must fail.
TEST_F(WorkerStepsTest, BadMetadataIsRefusedAndFencesAllBlocks) {
  bind_and_start({.iteration = 3, .saves = {save_of(1, {5})}});
  std::vector<std::byte> bad = encoded({.iteration = 4});
  bad[8] ^= std::byte{1};
  EXPECT_EQ(code_of(steps_.bind(bad)), ErrorCode::kCorrupt);
  ASSERT_THAT(rank_.fences, SizeIs(1));
  EXPECT_EQ(rank_.fences[0].blocks, all_blocks());
  EXPECT_EQ(rank_.fences[0].overwritten_in, StepMark::begun(4));
  // The step continues without a cache.
  EXPECT_EQ(code_of(steps_.start_load({})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.wait_for_layer(0)), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  tell({.saves = {operation(1)}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.saved = {1U}}));
  // Copies of this step may still arrive.
  bind_and_start({.iteration = 9});
  ASSERT_THAT(rank_.fences, SizeIs(2));
  EXPECT_EQ(rank_.fences[1].blocks, all_blocks());
  EXPECT_EQ(rank_.fences[1].overwritten_in, StepMark::begun(9));
  bind_and_start({.iteration = 10});
  EXPECT_THAT(rank_.fences, SizeIs(2));
}

TEST_F(WorkerStepsTest, UnknownBlocksAreBadMetadata) {
  EXPECT_EQ(code_of(bind({.iteration = 1, .loads = {load_of(1, {5, kBlocks})}})), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of(bind({.iteration = 1, .saves = {save_of(1, {kBlocks})}})), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of(bind({.iteration = 1, .fences = {fenced_operation(operation(1), blocks_of({kBlocks}))}})),
            ErrorCode::kCorrupt);
  EXPECT_FALSE(operations_.has_any());
  EXPECT_TRUE(bind({.iteration = 1, .loads = {load_of(1, {kBlocks - 1})}}));
}

TEST_F(WorkerStepsTest, IterationsGrow) {
  bind_and_start({.iteration = 5, .loads = {load_of(1, {5}, true)}});
  const Status again = bind({.iteration = 5});
  EXPECT_EQ(code_of(again), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(again.error().message, HasSubstr("iteration 5 was bound after iteration 5"));
  EXPECT_EQ(code_of(steps_.save_step({})), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(rank_.expected.back(), IsEmpty());
  EXPECT_TRUE(bind({.iteration = 8}));
}

// --- a leader that is gone ---

TEST_F(WorkerStepsTest, WhatWasBoundFailsOnceWhenTheLeaderIsGone) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5, 6})}, .saves = {save_of(2, {7})}});
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  rank_.now = {.is_connected = false, .generation = 1, .transfers = 1};
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes()) << "a copy still touches blocks";
  rank_.now.transfers = 0;
  WorkerOutcomes report = steps_.take_outcomes();
  EXPECT_EQ(report, (WorkerOutcomes{.loaded = {{1U, false}}, .saved = {2U}, .failed_blocks = blocks_of({5, 6})}));
  for (const ScriptedRank::Fence& fence : rank_.fences) {
    EXPECT_EQ(fence.overwritten_in, StepMark::begun(2));
    EXPECT_EQ(fence.deadline, clock_.now()) << "nothing waits";
  }
  rank_.now = {.is_connected = true, .generation = 2};
  tell({.loads = {{operation(1), 2}}, .saves = {operation(2)}});
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
}

TEST_F(WorkerStepsTest, AnOutcomeOfAnotherConnectionIsNotWaitedFor) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5})}});
  rank_.now.generation = 2;
  bind_and_start({.iteration = 2, .loads = {load_of(2, {6})}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5})}));
  tell({.loads = {{operation(2), 1}}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{2U, true}}}));
}

TEST_F(WorkerStepsTest, WhatIsBoundWithoutALeaderFailsToo) {
  rank_.now = {.is_connected = false};
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5})}});
  rank_.now = {.is_connected = true, .generation = 1};
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5})}));
}

TEST_F(WorkerStepsTest, NoOperationFailsWhileACopyReadsItsBlocks) {
  bind_and_start({.iteration = 1, .saves = {save_of(1, {5})}});
  rank_.now.generation = 2;
  rank_.is_free = false;
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  EXPECT_THAT(rank_.fences, SizeIs(1));
  rank_.is_free = true;
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.saved = {1U}}));
}

TEST_F(WorkerStepsTest, ALeaderThatGoesWhileAStepWaitsEndsTheWait) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5}, true)}});
  at_look(5, [this] { rank_.now = {.is_connected = false, .generation = 1, .transfers = 1}; });
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5})}));
  EXPECT_EQ(clock_.now(), Duration(0));
}

// Its outcomes may have gone to a connection that was lost before the metadata was bound.
TEST_F(WorkerStepsTest, NothingIsExpectedForever) {
  bind_and_start({.iteration = 1, .loads = {load_of(1, {5})}});
  clock_.advance(seconds(60));
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  clock_.advance(seconds(1));
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5})}));
}

// --- a scheduler that was started again ---

constexpr LeaderId kOld{1, 1};
constexpr LeaderId kNew{2, 2};

// Its iterations count from the beginning, far below those of the one before.
TEST_F(WorkerStepsTest, ANewSchedulerCountsAnew) {
  bind_and_start({.leader = kOld, .iteration = 1000});
  ASSERT_TRUE(steps_.save_step({}));
  bind_and_start({.leader = kNew, .iteration = 0});
  EXPECT_THAT(rank_.followed, ElementsAre(kOld, kNew));
  EXPECT_EQ(rank_.marks.back(), (ScriptedRank::Mark{StepMark::begun(0), {}}));
  EXPECT_EQ(code_of(bind({.leader = kNew, .iteration = 0})), ErrorCode::kFailedPrecondition) << "its numbers grow";
  ASSERT_TRUE(bind({.leader = kNew, .iteration = 1}));
  EXPECT_THAT(rank_.followed, SizeIs(2)) << "once each";
}

TEST_F(WorkerStepsTest, ASchedulerThatWasReplacedIsRefused) {
  ASSERT_TRUE(bind({.leader = kOld, .iteration = 1000}));
  ASSERT_TRUE(bind({.leader = kNew, .iteration = 0}));
  const Status late = bind({.leader = kOld, .iteration = 1001});
  EXPECT_EQ(code_of(late), ErrorCode::kFailedPrecondition);
  EXPECT_THAT(late.error().message, HasSubstr("replaced by another one"));
  ASSERT_THAT(rank_.fences, SizeIs(1)) << "it is unknown which blocks that step overwrites";
  EXPECT_EQ(rank_.fences.back().blocks, all_blocks());
  EXPECT_EQ(rank_.fences.back().overwritten_in, StepMark::begun(1));
  ASSERT_TRUE(bind({.leader = kNew, .iteration = 1}));
}

// A scheduler that died before any of its metadata came: its late metadata is recognized by the time of its start.
TEST_F(WorkerStepsTest, ASchedulerThatWasSkippedIsRefused) {
  constexpr LeaderId kSkipped{2, 9};
  constexpr LeaderId kLatest{3, 3};
  ASSERT_TRUE(bind({.leader = kOld, .iteration = 9}));
  rank_.now.leader = kSkipped;  // joined before it died; the rank does not know yet
  ASSERT_TRUE(bind({.leader = kLatest, .iteration = 0}));
  EXPECT_EQ(code_of(bind({.leader = kSkipped, .iteration = 0})), ErrorCode::kFailedPrecondition);
  rank_.now.leader = kLatest;
  EXPECT_EQ(code_of(bind({.leader = kSkipped, .iteration = 1})), ErrorCode::kFailedPrecondition);
  ASSERT_TRUE(bind({.leader = kLatest, .iteration = 1}));
}

// The new scheduler's machine has a clock that is behind: it is taken for an earlier one until the rank has joined it.
TEST_F(WorkerStepsTest, ASchedulerWhoseClockIsBehindIsFollowedOnceTheRankHasJoinedIt) {
  rank_.now.leader = kNew;
  ASSERT_TRUE(bind({.leader = kNew, .iteration = 9}));
  EXPECT_EQ(code_of(bind({.leader = kOld, .iteration = 0})), ErrorCode::kFailedPrecondition);
  rank_.now = {.is_connected = true, .leader = kOld, .generation = 1};
  ASSERT_TRUE(bind({.leader = kOld, .iteration = 1}));
  EXPECT_EQ(code_of(bind({.leader = kNew, .iteration = 10})), ErrorCode::kFailedPrecondition) << "it is replaced";
}

// The numbers of operations begin anew as well, and the scheduler that waited for the old ones is gone.
TEST_F(WorkerStepsTest, OperationsInFlightOfTheOldSchedulerAreDropped) {
  rank_.now.leader = kOld;
  bind_and_start({.leader = kOld, .iteration = 9, .loads = {load_of(1, {5})}, .saves = {save_of(2, {6})}});
  rank_.now = {.is_connected = true, .leader = kNew, .generation = 1};                  // the same number as before
  operations_.receive(kNew, OperationOutcomes{.loads = {{operation(1), 0}}}.encode());  // before its metadata
  bind_and_start({.leader = kNew, .iteration = 0, .loads = {load_of(1, {7})}, .saves = {save_of(2, {8})}});
  operations_.receive(kOld, OperationOutcomes{.saves = {operation(2)}}.encode());
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({7})}));
  operations_.receive(kNew, OperationOutcomes{.saves = {operation(2)}}.encode());
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.saved = {2U}}));
}

// The engine knows the new scheduler before the rank does: no outcome can come yet, so nothing waits for one.
TEST_F(WorkerStepsTest, ALoadOfALeaderThatTheRankHasNotJoinedFails) {
  rank_.now.leader = kOld;
  bind_and_start({.leader = kOld, .iteration = 9});
  bind_and_start({.leader = kNew, .iteration = 0, .loads = {load_of(1, {5})}});
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{1U, false}}, .failed_blocks = blocks_of({5})}));
  rank_.now.leader = kNew;
  bind_and_start({.leader = kNew, .iteration = 1, .loads = {load_of(2, {6})}});
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  operations_.receive(kNew, OperationOutcomes{.loads = {{operation(2), 1}}}.encode());
  EXPECT_EQ(steps_.take_outcomes(), (WorkerOutcomes{.loaded = {{2U, true}}}));
}

TEST_F(WorkerStepsTest, AStepDoesNotBeginWhileCopiesOfTheOldLeaderTouchTheDevice) {
  ASSERT_TRUE(bind({.leader = kOld, .iteration = 9}));
  rank_.is_clear = false;
  EXPECT_EQ(code_of(bind({.leader = kNew, .iteration = 0})), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of(steps_.start_load({})), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(code_of(bind({.leader = kOld, .iteration = 10})), ErrorCode::kFailedPrecondition) << "it is replaced";
  rank_.is_clear = true;
  ASSERT_TRUE(bind({.leader = kNew, .iteration = 1}));
  EXPECT_THAT(rank_.followed, ElementsAre(kOld, kNew, kNew));
}

// --- saves in the step that computes the blocks ---

TEST_F(WorkerStepsTest, LayersAreNamedForInStepSavesAsSoonAsAllBeforeThemAreSaved) {
  const auto zero = std::make_shared<TestEvent>();
  const auto one = std::make_shared<TestEvent>();
  bind_and_start({.iteration = 4, .saves = {save_of(1, {8, 9}, true), save_of(2, {3})}});
  EXPECT_TRUE(steps_.save_layer(1, one));
  EXPECT_THAT(rank_.marks, ElementsAre(ScriptedRank::Mark{StepMark::begun(4), {}})) << "layer 0 is not computed";
  EXPECT_TRUE(steps_.save_layer(0, zero));
  ASSERT_THAT(rank_.marks, SizeIs(2));
  EXPECT_EQ(rank_.marks[1].mark, StepMark::begun(4));
  EXPECT_EQ(rank_.marks[1].layers, 2U);
  one->now = StepState::kOver;
  EXPECT_EQ(rank_.marks[1].after->state(), StepState::kPending) << "of both layers";
  zero->now = StepState::kOver;
  EXPECT_EQ(rank_.marks[1].after->state(), StepState::kOver);
  EXPECT_TRUE(steps_.save_layer(2, zero));
  ASSERT_THAT(rank_.marks, SizeIs(3));
  EXPECT_EQ(rank_.marks[2], (ScriptedRank::Mark{StepMark::computed(4), zero}));
  // The next step has none: its layers are not named.
  bind_and_start({.iteration = 5, .saves = {save_of(3, {4})}});
  EXPECT_TRUE(steps_.save_layer(0, {}));
  EXPECT_TRUE(steps_.save_step({}));
  ASSERT_THAT(rank_.marks, SizeIs(5));
  EXPECT_EQ(rank_.marks[4].mark, StepMark::computed(5));
  EXPECT_THAT(rank_.fences, IsEmpty());
}

// The engine has given up the step: what is in the blocks is unknown.
TEST_F(WorkerStepsTest, InStepSavesOfAStepThatWasNotComputedAreFenced) {
  bind_and_start({.iteration = 4, .saves = {save_of(1, {8, 9}, true), save_of(2, {3})}});
  EXPECT_TRUE(steps_.save_layer(0, {}));
  bind_and_start({.iteration = 5});
  EXPECT_THAT(rank_.fences, ElementsAre(ScriptedRank::Fence{blocks_of({8, 9}), StepMark::begun(5), clock_.now()}));
  rank_.fences.clear();
  EXPECT_TRUE(steps_.save_step({}));
  bind_and_start({.iteration = 6, .saves = {save_of(1, {7}, true)}});
  (void)steps_.take_outcomes();
  bind_and_start({.iteration = 7, .saves = {save_of(4, {6}, true)}});
  EXPECT_THAT(rank_.fences, ElementsAre(ScriptedRank::Fence{blocks_of({7}), StepMark::begun(7), clock_.now()}));
  EXPECT_TRUE(steps_.save_step({}));
  bind_and_start({.iteration = 8});
  EXPECT_THAT(rank_.fences, SizeIs(1)) << "iteration 7 was computed";
}

// The outcome comes with the next iteration at the earliest.
TEST_F(WorkerStepsTest, NobodyWaitsForAnInStepSave) {
  bind_and_start({.iteration = 4, .saves = {save_of(1, {8, 9}, true)}});
  EXPECT_TRUE(steps_.wait_for_layer(0));
  EXPECT_TRUE(steps_.save_step({}));
  const TimePoint before = clock_.now();
  let_time_pass(milliseconds(1));
  EXPECT_EQ(steps_.take_outcomes(), WorkerOutcomes());
  EXPECT_LT(clock_.now() - before, milliseconds(100));
  EXPECT_THAT(rank_.fences, IsEmpty());
  EXPECT_TRUE(is_pending(operations_, operation(1)));
  tell({.saves = {operation(1)}});
  EXPECT_THAT(steps_.take_outcomes().saved, ElementsAre(RequestId(1U)));
}

}  // namespace
}  // namespace cairn
