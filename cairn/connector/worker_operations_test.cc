#include "cairn/connector/worker_operations.h"

#include <gtest/gtest.h>

#include "cairn/connector/worker_steps_testing.h"

namespace cairn {
namespace {

using testing::blocks_of;
using testing::is_pending;
using testing::load_of;
using testing::operation;
using testing::save_of;

class WorkerOperationsTest : public ::testing::Test {
 protected:
  WorkerOperationsTest() { operations_.follow({}); }
  void bind(IterationMetadata metadata, std::uint32_t generation = 1) { operations_.bind(metadata, generation); }
  void tell(const OperationOutcomes& outcomes) { operations_.receive({}, outcomes.encode()); }

  ManualClock clock_;
  WorkerOperations operations_{clock_};
};

TEST_F(WorkerOperationsTest, OutcomesAreTakenOnceInOrder) {
  EXPECT_FALSE(operations_.has_any());
  bind({.loads = {load_of(1, {10, 11}), load_of(2, {12})}, .saves = {save_of(3, {13})}});
  EXPECT_TRUE(operations_.has_any());
  EXPECT_EQ(operations_.take(), WorkerOutcomes());
  tell({.loads = {{operation(2), 1}}});
  tell({.loads = {{operation(1), 2}}, .saves = {operation(3)}});
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.loaded = {{2U, true}, {1U, true}}, .saved = {3U}}));
  EXPECT_FALSE(operations_.has_any());
  EXPECT_EQ(operations_.take(), WorkerOutcomes());
}

TEST_F(WorkerOperationsTest, ALoadThatArrivedInPartNamesTheOtherBlocks) {
  bind({.loads = {load_of(1, {10, 11, 12}), load_of(2, {20, 21})}});
  tell({.loads = {{operation(1), 1}, {operation(2), 0}}});
  EXPECT_EQ(operations_.take(),
            (WorkerOutcomes{.loaded = {{1U, false}, {2U, false}}, .failed_blocks = blocks_of({11, 12, 20, 21})}));
}

// A leader that counts more blocks than there are cannot make us read beyond them.
TEST_F(WorkerOperationsTest, MoreBlocksThanThereAreIsAllOfThem) {
  bind({.loads = {load_of(1, {10})}});
  tell({.loads = {{operation(1), 99}}});
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.loaded = {{1U, true}}}));
}

TEST_F(WorkerOperationsTest, AnOutcomeThatComesFirstIsKept) {
  tell({.loads = {{operation(1), 1}}, .saves = {operation(2)}});
  EXPECT_FALSE(operations_.has_any());
  bind({.loads = {load_of(1, {10, 11})}, .saves = {save_of(2, {12})}});
  EXPECT_FALSE(is_pending(operations_, operation(1)));
  EXPECT_EQ(operations_.take(),
            (WorkerOutcomes{.loaded = {{1U, false}}, .saved = {2U}, .failed_blocks = blocks_of({11})}));
}

TEST_F(WorkerOperationsTest, AnOutcomeWithoutAnOperationIsForgotten) {
  tell({.saves = {operation(7)}});
  for (std::uint64_t i = 0; i < 2 * WorkerOperations::kKeptIterations; ++i) {
    bind({});
  }
  bind({.saves = {save_of(7, {1})}});
  EXPECT_TRUE(is_pending(operations_, operation(7)));
}

TEST_F(WorkerOperationsTest, AMissedOperationEndsWithoutBlocks) {
  bind({.iteration = 4, .loads = {load_of(1, {10, 11}), load_of(2, {12})}, .saves = {save_of(3, {13})}});
  bind({.iteration = 5, .loads = {load_of(4, {14})}});
  tell({.finished_before = 5, .in_flight = {operation(2)}});
  EXPECT_TRUE(is_pending(operations_, operation(2))) << "it is in flight";
  EXPECT_TRUE(is_pending(operations_, operation(4))) << "its iteration is not covered";
  const WorkerOutcomes report = operations_.take();
  EXPECT_EQ(report.loaded, (std::vector<WorkerOutcomes::Loaded>{{1U, false}}));
  EXPECT_EQ(report.saved, std::vector<RequestId>{3U});
  EXPECT_EQ(report.failed_blocks, blocks_of({10, 11}));
  tell({.loads = {{operation(2), 1}, {operation(4), 1}}});
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.loaded = {{2U, true}, {4U, true}}}));
}

TEST_F(WorkerOperationsTest, AMissedOperationEndsAlsoIfItIsBoundLater) {
  tell({.loads = {{operation(1), 1}}, .finished_before = 6, .in_flight = {operation(2)}});
  bind({.iteration = 4, .loads = {load_of(1, {10}), load_of(2, {11})}, .saves = {save_of(3, {12})}});
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.loaded = {{1U, true}}, .saved = {3U}}))
      << "the outcomes that came count";
  EXPECT_TRUE(is_pending(operations_, operation(2)));
  bind({.iteration = 6, .saves = {save_of(4, {13})}});
  EXPECT_TRUE(is_pending(operations_, operation(4)));
  EXPECT_TRUE(is_pending(operations_, operation(2)));
}

TEST_F(WorkerOperationsTest, AMissedLoadOfTheStepIsShort) {
  bind({.iteration = 4, .loads = {load_of(1, {10}, true)}});
  tell({.finished_before = 5});
  EXPECT_FALSE(operations_.in_step().is_pending);
  EXPECT_TRUE(operations_.in_step().is_short);
}

TEST_F(WorkerOperationsTest, AnOutcomeOfTheOtherKindOrOfBadBytesChangesNothing) {
  bind({.loads = {load_of(1, {10})}});
  tell({.saves = {operation(1)}});
  operations_.receive({}, std::vector<std::byte>(7));
  EXPECT_TRUE(is_pending(operations_, operation(1)));
}

TEST_F(WorkerOperationsTest, AnOperationFailsOnGiveUpWhateverArrivesLater) {
  bind({.loads = {load_of(1, {10, 11})}, .saves = {save_of(2, {12})}});
  operations_.give_up(operation(1));
  operations_.give_up(operation(2));
  tell({.loads = {{operation(1), 2}}, .saves = {operation(2)}});
  EXPECT_EQ(operations_.take(),
            (WorkerOutcomes{.loaded = {{1U, false}}, .saved = {2U}, .failed_blocks = blocks_of({10, 11})}));
  EXPECT_EQ(operations_.take(), WorkerOutcomes());
}

TEST_F(WorkerOperationsTest, AnOutcomeOfTheLeaderIsNotChangedByGiveUp) {
  bind({.loads = {load_of(1, {10})}});
  tell({.loads = {{operation(1), 1}}});
  operations_.give_up(operation(1));
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.loaded = {{1U, true}}}));
}

TEST_F(WorkerOperationsTest, LoadsInTheStepAreCountedApart) {
  bind({.loads = {load_of(1, {10}, true), load_of(2, {20, 21}, true), load_of(3, {30})}});
  EXPECT_TRUE(operations_.in_step().is_pending);
  EXPECT_FALSE(operations_.in_step().is_short);
  tell({.loads = {{operation(1), 1}, {operation(3), 0}}});
  EXPECT_TRUE(operations_.in_step().is_pending);
  EXPECT_FALSE(operations_.in_step().is_short) << "the load of an earlier bind";
  tell({.loads = {{operation(2), 1}}});
  EXPECT_FALSE(operations_.in_step().is_pending);
  EXPECT_TRUE(operations_.in_step().is_short);
  (void)operations_.take();
  EXPECT_FALSE(operations_.in_step().is_short);
}

TEST_F(WorkerOperationsTest, WhatWasReadTooEarlyIsNotLoaded) {
  bind({.loads = {load_of(1, {10, 11}, true), load_of(2, {20}, true), load_of(3, {30}), load_of(4, {40, 41}, true)}});
  tell({.loads = {{operation(1), 2}}});
  operations_.read_early(blocks_of({11, 20, 30}));
  operations_.read_early(blocks_of({99}));
  tell({.loads = {{operation(2), 1}, {operation(3), 1}, {operation(4), 2}}});
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.loaded = {{1U, false}, {2U, false}, {3U, true}, {4U, true}},
                                                .failed_blocks = blocks_of({11, 20})}));
}

TEST_F(WorkerOperationsTest, BlocksThatWillNotComeAreTakenOnce) {
  bind({.loads = {load_of(1, {10, 11}, true), load_of(2, {20, 21}, true), load_of(3, {30})}});
  tell({.loads = {{operation(1), 1}, {operation(3), 0}}});
  EXPECT_EQ(operations_.take_short(), blocks_of({11}));
  tell({.loads = {{operation(2), 0}}});
  EXPECT_EQ(operations_.take_short(), blocks_of({20, 21}));
  EXPECT_TRUE(operations_.take_short().empty());
}

TEST_F(WorkerOperationsTest, UnansweredAreThoseOfAnotherConnectionAndOfLongAgo) {
  const auto unanswered = [&](std::uint32_t generation, Duration bound_before) {
    std::vector<std::uint64_t> slots;
    for (const OperationPtr& pending : operations_.unanswered(generation, bound_before)) {
      slots.push_back(pending->id.slot);
    }
    std::ranges::sort(slots);
    return slots;
  };
  using Slots = std::vector<std::uint64_t>;
  bind({.loads = {load_of(1, {10})}}, 1);
  clock_.advance(std::chrono::seconds(1));
  bind({.saves = {save_of(2, {20})}}, 2);
  clock_.advance(std::chrono::seconds(1));
  bind({.saves = {save_of(3, {30})}}, 2);
  EXPECT_EQ(unanswered(2, std::chrono::seconds(0)), Slots({1}));
  EXPECT_EQ(unanswered(2, std::chrono::seconds(0)), Slots({1})) << "until give_up()";
  EXPECT_EQ(unanswered(0, std::chrono::seconds(0)), Slots({1, 2, 3}));
  operations_.give_up(operation(1));
  EXPECT_EQ(unanswered(2, std::chrono::seconds(0)), Slots());
  EXPECT_EQ(unanswered(2, std::chrono::seconds(1)), Slots());
  EXPECT_EQ(unanswered(2, std::chrono::seconds(2)), Slots({2}));
  EXPECT_EQ(unanswered(2, std::chrono::seconds(3)), Slots({2, 3}));
  EXPECT_EQ(unanswered(3, std::chrono::seconds(0)), Slots({2, 3}));
}

TEST_F(WorkerOperationsTest, WaitsUntilTheEndOrTheDeadlineOrUntilNobodyAnswers) {
  bind({.loads = {load_of(1, {10}, true)}, .saves = {save_of(2, {20})}});
  const std::vector<OperationPtr> save = {save_of(2, {20})};
  const TimePoint deadline = clock_.now() + std::chrono::seconds(1);
  int asked = 0;
  const auto advance = [&] {
    clock_.advance(std::chrono::milliseconds(300));
    return ++asked > 0;
  };
  EXPECT_FALSE(operations_.wait_for(save, deadline, advance));
  EXPECT_EQ(asked, 4);
  EXPECT_FALSE(operations_.wait_for(save, clock_.now() + std::chrono::seconds(1), [] { return false; }));
  const auto answer = [&] {
    tell({.loads = {{operation(1), 1}}, .saves = {operation(2)}});
    return true;
  };
  EXPECT_TRUE(operations_.wait_for(save, clock_.now() + std::chrono::seconds(1), answer));
  EXPECT_TRUE(operations_.wait_for_in_step(clock_.now(), answer));
}

TEST_F(WorkerOperationsTest, OutcomesOfALeaderThatIsNotFollowedYetAreKeptAndBounded) {
  constexpr LeaderId kNext{5, 5};
  bind({.loads = {load_of(1, {10}, true)}});
  const auto tell_next = [&](std::uint64_t slot) {
    operations_.receive(kNext, OperationOutcomes{.saves = {operation(slot)}}.encode());
  };
  for (std::uint64_t slot = 0; slot < WorkerOperations::kMessagesAhead + 5; ++slot) {
    tell_next(slot);
  }
  EXPECT_TRUE(is_pending(operations_, operation(1))) << "it is another leader's";
  operations_.follow(kNext);
  EXPECT_FALSE(operations_.has_any());
  EXPECT_FALSE(operations_.in_step().is_pending);
  bind({.saves = {save_of(1, {1}), save_of(WorkerOperations::kMessagesAhead + 1, {2})}});
  EXPECT_EQ(operations_.take(), (WorkerOutcomes{.saved = {1U}}));
  EXPECT_TRUE(is_pending(operations_, operation(WorkerOperations::kMessagesAhead + 1)));
}

}  // namespace
}  // namespace cairn
