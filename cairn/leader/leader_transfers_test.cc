#include "cairn/leader/leader_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "cairn/leader/leader_testing.h"
#include "cairn/transfer/in_step_mark.h"
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
    transfer.not_before = mark_;
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
  StepMark mark_ = StepMark::begun(3);
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

TEST_F(LeaderTransfersTest, TheCopyTookAsLongAsTheSlowestRank) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(3), down_);
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    RankTransferOutcome answer = all_done(*copy);
    answer.copied = milliseconds(rank == 1 ? 7 : 2);
    answered(rank, answer);
  }
  EXPECT_EQ(log_.outcome("a").copied, milliseconds(7));
  for (const std::uint32_t rank : {0U, 1U, 2U}) {
    settled(rank, copy->id);
  }
}

TEST_F(LeaderTransfersTest, TheChecksumIsThatOfTheSumsOfAllRanks) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(2), down_);
  answered(1, all_done(*copy, 6));
  answered(0, all_done(*copy, 5));
  EXPECT_EQ(log_.outcome("a").blocks[1].checksum,
            cairn::finish({.products = 11, .words = 0}, down_->whole_block_bytes(), copy->tags[1]));
  settled(0, copy->id);
  settled(1, copy->id);
}

TEST_F(LeaderTransfersTest, ChecksumsAreComparedOrLeftOut) {
  Transfer transfer = log_.transfer("a", down_, 2);
  transfer.verify = Verify::kCheck;
  transfer.blocks[0].expected =
      cairn::finish({.products = 1, .words = 0}, down_->whole_block_bytes(), transfer.blocks[0].tag);
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

TEST_F(LeaderTransfersTest, IsReportedWhenNoBlockCanBeDoneAndTheOthersNeedNotBegin) {
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
  EXPECT_FALSE(log_.is_settled("a"));  // rank 1 may still copy
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

TEST_F(LeaderTransfersTest, ARankThatAnsweredAndWentFailsOnlyTransfersWithoutAnOutcome) {
  const std::optional<RankTransfer> open = begin("open", 1, there(2), down_);
  const std::optional<RankTransfer> reported = begin("reported", 1, there(2), down_);
  answered(1, all_done(*open));
  answered(1, all_done(*reported));
  answered(0, all_done(*reported));
  EXPECT_THAT(copies_.gone(1, 1, "gone"), ElementsAre(open->id));
  run();
  EXPECT_THAT(log_.states("open"), Each(BlockState::kFailed));
  EXPECT_TRUE(log_.outcome("reported").all_done());
  EXPECT_FALSE(log_.is_settled("reported"));
  settled(0, reported->id);
  copies_.over(1, 1);
  run();
  EXPECT_TRUE(log_.is_settled("reported"));
  copies_.give_up("over");
  run();
}

TEST_F(LeaderTransfersTest, AnswersThatDoNotFitAreTheRanksFault) {
  const std::optional<RankTransfer> copy = begin("a", 2, there(2), down_);
  RankTransferOutcome answer = all_done(*copy);
  EXPECT_THAT(copies_.answered(0, 2, answer).error().message, HasSubstr("which was not sent to it"));
  EXPECT_THAT(copies_.settled(0, 1, copy->id).error().message, HasSubstr("which it has not answered"));
  answer.states.pop_back();
  EXPECT_THAT(copies_.answered(0, 1, answer).error().message,
              HasSubstr("answers for 1 blocks, but the transfer has 2"));
  answer = all_done(*copy);
  answer.sums.pop_back();
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

TEST_F(LeaderTransfersTest, ADeadlineIsSentToRanksOnceAndSettlesWithTheirAnswer) {
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

TEST_F(LeaderTransfersTest, HostMemoryOfAnEarlierEpochIsAMismatchAndNotSentToRanks) {
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
  const std::optional<RankTransfer> reported = begin("reported", 1, there(2), down_);
  answered(0, all_done(*reported));
  answered(1, all_done(*reported));
  copies_.give_up("the leader ended");
  run();
  EXPECT_THAT(log_.outcome("open").error, HasSubstr("failed: the leader ended"));
  EXPECT_TRUE(log_.outcome("reported").all_done());
  EXPECT_TRUE(log_.is_settled("open"));
  EXPECT_TRUE(log_.is_settled("reported"));
  EXPECT_TRUE(copies_.empty());
}

// Ranks 0 and 1 hold one head, ranks 2 and 3 another.
class DealtTransfersTest : public LeaderTransfersTest {
 protected:
  static std::vector<RankPresence> two_by_two(bool shares) {
    std::vector<RankPresence> ranks = there(4);
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      ranks[rank].replica = rank % 2;
      ranks[rank].replicas = 2;
      ranks[rank].shares = shares;
    }
    return ranks;
  }
  Checksum checksum(const CopyPlanPtr& plan, const BlockSums& sums, const BlockTag& tag) {
    return cairn::finish(sums, plan->whole_block_bytes(), tag);
  }
};

TEST_F(DealtTransfersTest, ReplicasThatShareSaveSomeBlocksEach) {
  const std::optional<RankTransfer> whole = begin("a", 3, two_by_two(true), down_);
  ASSERT_TRUE(copies_.is_dealt(whole->id));
  const std::optional<RankTransfer> even = copies_.part_of(*whole, 2);
  const std::optional<RankTransfer> odd = copies_.part_of(*whole, 3);
  EXPECT_THAT(even->pairs, ElementsAre(BlockPair{0, 0}, BlockPair{2, 2}));
  EXPECT_THAT(even->tags, ElementsAre(whole->tags[0], whole->tags[2]));
  EXPECT_THAT(odd->pairs, ElementsAre(BlockPair{1, 1}));
  for (const std::uint32_t rank : {0U, 2U}) {
    answered(rank, all_done(*even, 10 + rank));
  }
  for (const std::uint32_t rank : {1U, 3U}) {
    EXPECT_FALSE(log_.is_done("a"));
    answered(rank, all_done(*odd, 10 + rank));
  }
  const TransferOutcome outcome = log_.outcome("a");
  EXPECT_TRUE(outcome.all_done());
  EXPECT_EQ(outcome.blocks[0].checksum, checksum(down_, {22, 0}, whole->tags[0]));
  EXPECT_EQ(outcome.blocks[1].checksum, checksum(down_, {24, 0}, whole->tags[1]));
  EXPECT_EQ(outcome.blocks[2].checksum, checksum(down_, {22, 0}, whole->tags[2]));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    settled(rank, whole->id);
  }
  EXPECT_TRUE(log_.is_settled("a"));
}

TEST_F(DealtTransfersTest, ARankWithoutABlockTakesNoPart) {
  const std::optional<RankTransfer> whole = begin("a", 1, two_by_two(true), down_);
  EXPECT_FALSE(copies_.part_of(*whole, 1).has_value());
  EXPECT_EQ(copies_.in_flight(1), 0U);
  EXPECT_THAT(copies_.gone(1, 1, "dead"), ::testing::IsEmpty()) << "its loss is none of this transfer";
  EXPECT_FALSE(copies_.answered(3, 1, all_done(*whole)).has_value()) << "it was not asked";
  answered(0, all_done(*whole));
  answered(2, all_done(*whole));
  EXPECT_TRUE(log_.outcome("a").all_done());
  settled(0, whole->id);
  EXPECT_FALSE(log_.is_settled("a"));
  settled(2, whole->id);
  EXPECT_TRUE(log_.is_settled("a"));
}

TEST_F(DealtTransfersTest, EveryReplicaLoadsAndAllMustReadTheSame) {
  const CopyPlanPtr from_disk = rank_plan(MemoryKind::kFile, MemoryKind::kDevice);
  const std::optional<RankTransfer> whole = begin("a", 2, two_by_two(true), from_disk);
  EXPECT_FALSE(copies_.is_dealt(whole->id));
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    RankTransferOutcome answer = all_done(*whole, rank < 2 ? 5 : 6);
    answer.sums[1].words = rank == 3 ? 1 : 0;
    answered(rank, answer);
    settled(rank, whole->id);
  }
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kDone, BlockState::kMismatch));
  EXPECT_EQ(log_.outcome("a").blocks[0].checksum, checksum(from_disk, {11, 0}, whole->tags[0]));
}

TEST_F(DealtTransfersTest, CopiesOfReplicasAreCheckedEachForItself) {
  const std::vector<RankPresence> ranks = two_by_two(false);
  const auto run_once = [&](const std::string& name, std::uint64_t of_replica) {
    const std::optional<RankTransfer> whole = begin(name, 1, ranks, down_);
    EXPECT_FALSE(copies_.is_dealt(whole->id));
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      answered(rank, all_done(*whole, rank % 2 == 0 ? 5 : of_replica));
      settled(rank, whole->id);
    }
    EXPECT_TRUE(log_.outcome(name).all_done()) << "copies may differ";
    return log_.outcome(name).blocks[0].checksum;
  };
  const Checksum saved = run_once("a", 7);
  EXPECT_EQ(run_once("b", 7), saved);
  EXPECT_NE(run_once("c", 8), saved);
}

// --- in-step saves: device block i to host block i ---

std::vector<BlockId> first_blocks(std::uint32_t count) {
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.push_back(BlockId{i});
  }
  return blocks;
}

TEST_F(LeaderTransfersTest, AnInStepSaveIsDoneWhenTheEngineSaysThatItsStepIsComputed) {
  mark_ = in_step_mark(3);
  const std::optional<RankTransfer> copy = begin("a", 2, there(2), down_);
  EXPECT_EQ(copy->not_before, in_step_mark(3));
  finish(*copy, 2);
  EXPECT_FALSE(log_.is_done("a")) << "the bytes are copied; nobody knows whether they are right";
  EXPECT_FALSE(copies_.empty());
  EXPECT_TRUE(copies_.confirm(in_step_mark(2), first_blocks(2)).empty());
  EXPECT_TRUE(copies_.confirm(in_step_mark(3), first_blocks(1)).empty());
  run();
  EXPECT_FALSE(log_.is_done("a")) << "of one block nothing was said";
  EXPECT_TRUE(copies_.confirm(in_step_mark(3), first_blocks(2)).empty());
  run();
  EXPECT_TRUE(log_.outcome("a").all_done());
  EXPECT_NE(log_.outcome("a").blocks[1].checksum, kNoChecksum);
  EXPECT_TRUE(log_.is_settled("a"));
  EXPECT_TRUE(copies_.empty());
}

TEST_F(LeaderTransfersTest, TheEnginesWordMayComeBeforeTheSaveAndBeforeTheRanks) {
  mark_ = in_step_mark(3);
  EXPECT_TRUE(copies_.confirm(in_step_mark(3), first_blocks(2)).empty());
  const std::optional<RankTransfer> early = begin("early", 2, there(1), down_);
  EXPECT_FALSE(log_.is_done("early"));
  finish(*early, 1);
  EXPECT_TRUE(log_.outcome("early").all_done());
  mark_ = in_step_mark(4);
  const std::optional<RankTransfer> next = begin("next", 1, there(1), down_);
  finish(*next, 1);
  EXPECT_FALSE(log_.is_done("next")) << "the word was of an earlier step";
  EXPECT_TRUE(copies_.withdraw(in_step_mark(4), first_blocks(1)).empty());
  run();
  EXPECT_THAT(log_.states("next"), Each(BlockState::kCancelled));
  mark_ = in_step_mark(2);
  finish(*begin("old", 1, there(1), down_), 1);
  EXPECT_THAT(log_.states("old"), Each(BlockState::kCancelled)) << "its blocks are another step's by now";
}

TEST_F(LeaderTransfersTest, BlocksOfAStepThatFailedAreNotSavedAndTheOthersAre) {
  mark_ = in_step_mark(3);
  const std::optional<RankTransfer> copy = begin("a", 3, there(2), down_);
  answered(0, all_done(*copy));
  EXPECT_TRUE(copies_.withdraw(in_step_mark(3), std::vector{BlockId{2}}).empty());
  EXPECT_TRUE(copies_.confirm(in_step_mark(3), first_blocks(2)).empty());
  run();
  EXPECT_FALSE(log_.is_done("a")) << "a rank has not answered";
  answered(1, all_done(*copy));
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kDone, BlockState::kDone, BlockState::kCancelled));
  settled(0, copy->id);
  settled(1, copy->id);
  // If nothing is left of it, the ranks need not go on.
  const std::optional<RankTransfer> all = begin("all", 2, there(2), down_);
  answered(0, all_failed(*all, "no"));
  EXPECT_TRUE(log_.is_done("all"));
  settled(0, all->id);
  answered(1, all_done(*all));
  settled(1, all->id);
  mark_ = in_step_mark(4);
  const std::optional<RankTransfer> none = begin("none", 2, there(2), down_);
  EXPECT_THAT(copies_.withdraw(in_step_mark(4), first_blocks(2)), ElementsAre(none->id));
  run();
  EXPECT_THAT(log_.states("none"), Each(BlockState::kCancelled));
  EXPECT_FALSE(log_.is_settled("none")) << "ranks may still read";
  finish(*none, 2);
  EXPECT_TRUE(log_.is_settled("none"));
}

TEST_F(LeaderTransfersTest, AnInStepSaveThatNobodySpeaksOfEnds) {
  mark_ = in_step_mark(3);
  const std::optional<RankTransfer> cancelled = begin("cancelled", 1, there(1), down_);
  finish(*cancelled, 1);
  EXPECT_THAT(copies_.cancelled(last_), ElementsAre(cancelled->id));
  run();
  EXPECT_THAT(log_.states("cancelled"), Each(BlockState::kCancelled));
  EXPECT_TRUE(log_.is_settled("cancelled"));
  const std::optional<RankTransfer> late = begin("late", 1, there(1), down_, clock_.now() + milliseconds(5));
  finish(*late, 1);
  clock_.advance(milliseconds(5));
  EXPECT_THAT(copies_.expired(clock_.now()), ElementsAre(late->id));
  run();
  EXPECT_THAT(log_.states("late"), Each(BlockState::kCancelled));
  const std::optional<RankTransfer> last = begin("last", 1, there(1), down_);
  EXPECT_THAT(copies_.all_cancelled(), ElementsAre(last->id));
  run();
  EXPECT_TRUE(log_.is_done("last"));
  finish(*last, 1);
  EXPECT_TRUE(log_.is_settled("last"));
  EXPECT_TRUE(copies_.empty());
}

}  // namespace
}  // namespace cairn
