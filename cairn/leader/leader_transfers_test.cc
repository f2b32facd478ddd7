#include "cairn/leader/leader_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "cairn/leader/leader_testing.h"
#include "cairn/wire/combined_checksum.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using testing::all_done;
using testing::all_failed;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::rank_plan;
using testing::TransferLog;

class LeaderTransfersTest : public ::testing::Test {
 protected:
  static std::vector<RankPresence> there(std::size_t ranks, std::uint32_t generation = 1) {
    return std::vector<RankPresence>(ranks, {.is_there = true, .generation = generation});
  }
  std::optional<RankTransfer> begin(const std::string& name, std::uint32_t blocks,
                                    const std::vector<RankPresence>& ranks, const CopyPlanPtr& plan,
                                    TimePoint deadline = TimePoint::max(), Verify verify = Verify::kMake) {
    Transfer transfer = log_.transfer(name, plan, blocks, deadline);
    transfer.verify = verify;
    transfer.not_before = StepMark::begun(3);
    const Result<TransferId> id = ledger_.accept(std::move(transfer));
    EXPECT_TRUE(id.has_value());
    last_ = *id;
    return copies_.begin(ledger_.try_take(), ranks, clock_.now());
  }
  void finish(const RankTransfer& copy, std::size_t ranks, std::uint32_t generation = 1) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(copies_.answered(rank, generation, all_done(copy)).has_value());
      ASSERT_TRUE(copies_.settled(rank, generation, copy.id).has_value());
    }
    run();
  }
  LeaderTransfers::Needless answered(std::uint32_t rank, const RankTransferOutcome& answer) {
    const Result<LeaderTransfers::Needless> needless = copies_.answered(rank, 1, answer);
    EXPECT_TRUE(needless.has_value()) << needless.error().to_string();
    run();
    return *needless;
  }
  void settled(std::uint32_t rank, TransferId id) {
    EXPECT_TRUE(copies_.settled(rank, 1, id).has_value());
    run();
  }
  void run() {
    while (ledger_.run_callbacks()) {
    }
  }

  const CopyPlanPtr down_ = rank_plan(MemoryKind::kDevice, MemoryKind::kPinned);
  const CopyPlanPtr up_ = rank_plan(MemoryKind::kPinned, MemoryKind::kDevice);
  const CopyPlanPtr to_disk_ = rank_plan(MemoryKind::kPinned, MemoryKind::kFile);
  TransferLog log_;
  ManualClock clock_;
  TransferId last_{};
  LeaderTransfers copies_;
  TransferLedger ledger_{clock_, 64, TransferLedger::Callbacks::kOnRequest};
};

TEST_F(LeaderTransfersTest, PlansNameTheTiersByTheirMemory) {
  EXPECT_EQ(route_of(*down_)->from, CacheLevel::kG1);
  EXPECT_EQ(route_of(*down_)->to, CacheLevel::kG2);
  EXPECT_EQ(route_of(*to_disk_)->to, CacheLevel::kG3);
  EXPECT_FALSE(route_of(*testing::small_plan()).has_value());
}

TEST_F(LeaderTransfersTest, TheCopySaysWhatTheTransferDoes) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(1), down_, TimePoint(milliseconds(30)));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->from, CacheLevel::kG1);
  EXPECT_EQ(copy->to, CacheLevel::kG2);
  EXPECT_EQ(copy->not_before, StepMark::begun(3));
  EXPECT_EQ(copy->time_left, milliseconds(30));
  EXPECT_THAT(copy->pairs, ElementsAre(BlockPair{0, 0}, BlockPair{1, 1}));
  EXPECT_THAT(copy->tags, ElementsAre(BlockTag{0, ~0ULL}, BlockTag{1, ~1ULL}));
  finish(*copy, 1);
  EXPECT_TRUE(copies_.empty());
}

TEST_F(LeaderTransfersTest, IsDoneWhenEveryRankSaysSoAndSettledWhenEveryRankHas) {
  for (const std::size_t ranks : {1U, 2U, 8U}) {
    const std::string name = std::to_string(ranks);
    const std::optional<RankTransfer> copy = begin(name, 3, there(ranks), down_);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(log_.is_done(name));
      answered(rank, all_done(*copy, rank));
    }
    ASSERT_TRUE(log_.is_done(name));
    EXPECT_TRUE(log_.outcome(name).all_done());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_FALSE(log_.is_settled(name));
      EXPECT_EQ(copies_.in_flight(rank), 1U);
      settled(rank, copy->id);
      EXPECT_EQ(copies_.in_flight(rank), 0U);
    }
    EXPECT_TRUE(log_.is_settled(name));
  }
}

TEST_F(LeaderTransfersTest, TheChecksumIsMadeOfThoseOfAllRanksInOrder) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(2), down_);
  answered(1, all_done(*copy, 6));
  answered(0, all_done(*copy, 5));
  const std::vector<Checksum> in_order = {Checksum{5}, Checksum{6}};
  EXPECT_EQ(log_.outcome("a").blocks[1].checksum, combine(in_order));
  settled(0, copy->id);
  settled(1, copy->id);
}

TEST_F(LeaderTransfersTest, ChecksumsAreComparedOrLeftOut) {
  Transfer transfer = log_.transfer("a", down_, 2);
  transfer.verify = Verify::kCheck;
  const Checksum one{1};
  transfer.blocks[0].expected = combine({&one, 1});
  ASSERT_TRUE(ledger_.accept(std::move(transfer)).has_value());
  std::optional<RankTransfer> copy = copies_.begin(ledger_.try_take(), there(1), clock_.now());
  finish(*copy, 1);
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kDone, BlockState::kMismatch));
  copy = begin("b", 1, there(1), down_, TimePoint::max(), Verify::kOff);
  finish(*copy, 1);
  EXPECT_EQ(log_.outcome("b").blocks[0].checksum, Checksum{});
}

TEST_F(LeaderTransfersTest, OfSeveralOutcomesTheWorstCounts) {
  const std::optional<RankTransfer> copy = begin("a", 5, there(3), down_);
  RankTransferOutcome first = all_done(*copy);
  first.states = {BlockState::kDone, BlockState::kCancelled, BlockState::kExpired, BlockState::kFailed,
                  BlockState::kDone};
  first.error = "the first";
  RankTransferOutcome second = all_done(*copy);
  second.states = {BlockState::kDone, BlockState::kExpired, BlockState::kFailed, BlockState::kMismatch,
                   BlockState::kMismatch};
  second.error = "the second";
  answered(0, first);
  answered(2, second);
  answered(1, all_done(*copy));
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kDone, BlockState::kExpired, BlockState::kFailed,
                                            BlockState::kMismatch, BlockState::kMismatch));
  EXPECT_EQ(log_.outcome("a").error, "block 1 of 5 (1 to 1) expired: rank 2: the second");
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    settled(rank, copy->id);
  }
  EXPECT_TRUE(log_.is_settled("a"));
}

TEST_F(LeaderTransfersTest, IsToldWhenNoBlockCanBeDoneAndTheOthersNeedNotBegin) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(2), down_);
  EXPECT_THAT(answered(1, all_failed(*copy, "no memory")), ElementsAre(copy->id));
  EXPECT_THAT(log_.states("a"), Each(BlockState::kFailed));
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 1: no memory"));
  settled(1, copy->id);
  EXPECT_FALSE(log_.is_settled("a"));  // the other may write
  EXPECT_THAT(answered(0, all_done(*copy)), ElementsAre());
  EXPECT_FALSE(log_.is_settled("a"));
  settled(0, copy->id);
  EXPECT_TRUE(log_.is_settled("a"));
}

TEST_F(LeaderTransfersTest, WithoutARankNothingIsSent) {
  std::vector<RankPresence> ranks = there(3);
  ranks[2] = {.reason = "it has not connected yet"};
  EXPECT_FALSE(begin("a", 2, ranks, down_).has_value());
  run();
  EXPECT_THAT(log_.states("a"), Each(BlockState::kFailed));
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 2 is not connected: it has not connected yet"));
  EXPECT_TRUE(log_.is_settled("a"));
  EXPECT_TRUE(copies_.empty());
}

TEST_F(LeaderTransfersTest, WhenARankGoesItsCopiesFailAndNoOthersDo) {
  const std::optional<RankTransfer> with_old = begin("a", 2, there(2), down_);
  std::vector<RankPresence> later = there(2);
  later[1].generation = 2;
  const std::optional<RankTransfer> with_new = begin("b", 2, later, down_);
  answered(0, all_done(*with_old));
  EXPECT_THAT(copies_.gone(1, 1, "its process has ended"), ElementsAre(with_old->id));
  run();
  EXPECT_THAT(log_.states("a"), Each(BlockState::kFailed));
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 1 is gone: its process has ended"));
  EXPECT_FALSE(log_.is_done("b"));
  settled(0, with_old->id);
  EXPECT_FALSE(log_.is_settled("a"));  // nobody knows what rank 1 does
  EXPECT_EQ(copies_.in_flight(1), 2U);
  copies_.over(1, 1);
  run();
  EXPECT_TRUE(log_.is_settled("a"));
  EXPECT_FALSE(log_.is_settled("b"));
  EXPECT_EQ(copies_.in_flight(1), 1U);
  answered(0, all_done(*with_new));
  settled(0, with_new->id);
  ASSERT_TRUE(copies_.answered(1, 2, all_done(*with_new)).has_value());
  ASSERT_TRUE(copies_.settled(1, 2, with_new->id).has_value());
  run();
  EXPECT_TRUE(log_.outcome("b").all_done());
  EXPECT_TRUE(log_.is_settled("b"));
}

TEST_F(LeaderTransfersTest, ARankThatAnsweredAndWentFailsACopyThatIsNotToldAndNoneThatIs) {
  const std::optional<RankTransfer> open = begin("open", 1, there(2), down_);
  const std::optional<RankTransfer> told = begin("told", 1, there(2), down_);
  answered(1, all_done(*open));
  answered(1, all_done(*told));
  answered(0, all_done(*told));
  EXPECT_THAT(copies_.gone(1, 1, "gone"), ElementsAre(open->id));
  run();
  EXPECT_THAT(log_.states("open"), Each(BlockState::kFailed));
  EXPECT_TRUE(log_.outcome("told").all_done());
  EXPECT_FALSE(log_.is_settled("told"));
  settled(0, told->id);
  copies_.over(1, 1);
  run();
  EXPECT_TRUE(log_.is_settled("told"));
  copies_.give_up("over");
  run();
}

TEST_F(LeaderTransfersTest, AnswersThatDoNotFitAreTheRanksFault) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(2), down_);
  RankTransferOutcome answer = all_done(*copy);
  EXPECT_THAT(copies_.answered(0, 2, answer).error().message, HasSubstr("which it was not asked for"));
  EXPECT_THAT(copies_.settled(0, 1, copy->id).error().message, HasSubstr("which it has not answered"));
  answer.states.pop_back();
  EXPECT_THAT(copies_.answered(0, 1, answer).error().message, HasSubstr("answers for 1 blocks and was asked for 2"));
  answer = all_done(*copy);
  answer.checksums.pop_back();
  EXPECT_FALSE(copies_.answered(0, 1, answer).has_value());
  answer = all_done(*copy);
  answer.id = TransferId{99};
  EXPECT_FALSE(copies_.answered(0, 1, answer).has_value());
  answered(0, all_done(*copy));
  EXPECT_FALSE(copies_.answered(0, 1, all_done(*copy)).has_value());
  settled(0, copy->id);
  EXPECT_FALSE(copies_.settled(0, 1, copy->id).has_value());
  answered(1, all_done(*copy));
  settled(1, copy->id);
  EXPECT_TRUE(log_.outcome("a").all_done());
}

TEST_F(LeaderTransfersTest, ADeadlineIsToldToRanksOnceAndSettlesWithTheirWord) {
  const std::optional<RankTransfer> copy = begin("a", 1, there(1), down_, TimePoint(milliseconds(10)));
  EXPECT_EQ(copies_.next_deadline(), TimePoint(milliseconds(10)));
  EXPECT_THAT(copies_.expired(clock_.now()), ElementsAre());
  clock_.advance(milliseconds(10));
  ledger_.check_deadlines();
  run();
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kExpired));
  EXPECT_THAT(copies_.expired(clock_.now()), ElementsAre(copy->id));
  EXPECT_THAT(copies_.expired(clock_.now()), ElementsAre());
  EXPECT_FALSE(copies_.next_deadline().has_value());
  EXPECT_FALSE(log_.is_settled("a"));
  answered(0, all_done(*copy));
  settled(0, copy->id);
  EXPECT_TRUE(log_.is_settled("a"));
}

TEST_F(LeaderTransfersTest, CancelNamesTheCopyOfTheTransferOnce) {
  const std::optional<RankTransfer> first = begin("a", 1, there(1), down_);
  const TransferId a = last_;
  const std::optional<RankTransfer> second = begin("b", 1, there(1), down_);
  EXPECT_THAT(copies_.cancelled(a), ElementsAre(first->id));
  EXPECT_THAT(copies_.cancelled(a), ElementsAre());
  EXPECT_THAT(copies_.all_cancelled(), ElementsAre(second->id));
  RankTransferOutcome answer = all_failed(*first, "it was taken back");
  answer.states[0] = BlockState::kCancelled;
  answered(0, answer);
  settled(0, first->id);
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kCancelled));
  finish(*second, 1);
}

TEST_F(LeaderTransfersTest, WhatWasCancelledBeforeItBeganIsNotSent) {
  ASSERT_TRUE(ledger_.accept(log_.transfer("a", down_, 1)).has_value());
  std::shared_ptr<ActiveTransfer> active = ledger_.try_take();
  ledger_.cancel(active->id());
  EXPECT_FALSE(copies_.begin(std::move(active), there(1), clock_.now()).has_value());
  run();
  EXPECT_TRUE(log_.is_settled("a"));
}

TEST_F(LeaderTransfersTest, HostMemoryOfAnEarlierEpochIsAMismatchThatNoRankIsAsked) {
  finish(*begin("down", 2, there(2), down_), 2);
  finish(*begin("up", 2, there(2), up_), 2);
  EXPECT_TRUE(log_.outcome("up").all_done());

  copies_.next_epoch();
  EXPECT_FALSE(begin("stale", 2, there(2), up_).has_value());
  run();
  EXPECT_THAT(log_.states("stale"), Each(BlockState::kMismatch));
  EXPECT_THAT(log_.outcome("stale").error, HasSubstr("a rank was replaced"));
  EXPECT_TRUE(log_.is_settled("stale"));

  finish(*begin("down again", 1, there(2), down_), 2);
  const std::optional<RankTransfer> half = begin("half", 2, there(2), to_disk_);
  ASSERT_TRUE(half.has_value());
  EXPECT_THAT(half->pairs, ElementsAre(BlockPair{0, 0}));
  finish(*half, 2);
  EXPECT_THAT(log_.states("half"), ElementsAre(BlockState::kDone, BlockState::kMismatch));
  EXPECT_NE(log_.outcome("half").blocks[0].checksum, Checksum{});
}

TEST_F(LeaderTransfersTest, AnEpochIsThatInWhichTheCopyBegan) {
  const std::optional<RankTransfer> copy = begin("down", 1, there(1), down_);
  copies_.next_epoch();
  finish(*copy, 1);
  EXPECT_FALSE(begin("up", 1, there(1), up_).has_value());
  run();
  EXPECT_THAT(log_.states("up"), ElementsAre(BlockState::kMismatch));
}

TEST_F(LeaderTransfersTest, HostMemoryThatWasWrittenInPartIsNotRead) {
  finish(*begin("down", 1, there(2), down_), 2);
  const std::optional<RankTransfer> again = begin("again", 1, there(2), down_);
  answered(0, all_failed(*again, "broken"));
  EXPECT_FALSE(begin("up", 1, there(2), up_).has_value());
  run();
  EXPECT_THAT(log_.states("up"), ElementsAre(BlockState::kMismatch));
  copies_.give_up("over");
  run();
}

TEST_F(LeaderTransfersTest, GivingUpFailsWhatIsOpenAndLetsGoOfAll) {
  const std::optional<RankTransfer> open = begin("open", 1, there(2), down_);
  const std::optional<RankTransfer> told = begin("told", 1, there(2), down_);
  answered(0, all_done(*told));
  answered(1, all_done(*told));
  copies_.give_up("the leader ended");
  run();
  EXPECT_THAT(log_.outcome("open").error, HasSubstr("failed: the leader ended"));
  EXPECT_TRUE(log_.outcome("told").all_done());
  EXPECT_TRUE(log_.is_settled("open"));
  EXPECT_TRUE(log_.is_settled("told"));
  EXPECT_TRUE(copies_.empty());
}

}  // namespace
}  // namespace cairn
