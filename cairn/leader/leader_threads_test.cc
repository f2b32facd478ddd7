#include "cairn/leader/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "cairn/leader/leader_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using testing::all_done;
using testing::all_failed;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::FakeRank;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::rank_plan;
using testing::TransferLog;

// The calls of `on_change`, as lines.
class Changes {
 public:
  void add(const RankChange& change) {
    const std::lock_guard lock(mutex_);
    lines_.push_back("rank " + std::to_string(change.rank) + " generation " + std::to_string(change.generation) +
                     (change.is_there ? " is there" : " is gone: " + change.reason));
    changed_.notify_all();
  }
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return lines_.size() >= count; }));
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

class LeaderTest : public ::testing::Test {
 protected:
  void make(std::uint32_t ranks, const Clock& clock = steady_clock()) {
    Result<std::unique_ptr<Leader>> made =
        Leader::make({.ranks = ranks, .transfers = 64, .clock = &clock, .on_change = [this](const RankChange& change) {
                        changes_.add(change);
                      }});
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    leader_ = *std::move(made);
    ManagerConfig config;
    config.shutdown = milliseconds(1);
    leader_->open(config);
    executor_ = leader_->make_executor();
  }
  void make_ready(std::uint32_t ranks, const Clock& clock = steady_clock()) {
    make(ranks, clock);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(FakeRank::ready(*leader_, rank));
    }
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  }
  TransferId submit(const std::string& name, const CopyPlanPtr& plan, std::uint32_t blocks,
                    TimePoint deadline = TimePoint::max()) {
    const Result<TransferId> id = executor_->submit(log_.transfer(name, plan, blocks, deadline));
    EXPECT_TRUE(id.has_value()) << id.error().to_string();
    return *id;
  }

  const CopyPlanPtr down_ = rank_plan(MemoryKind::kDevice, MemoryKind::kPinned);
  const CopyPlanPtr up_ = rank_plan(MemoryKind::kPinned, MemoryKind::kDevice);
  const CopyPlanPtr to_disk_ = rank_plan(MemoryKind::kPinned, MemoryKind::kFile);
  TransferLog log_;
  Changes changes_;
  ManualClock manual_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<TransferExecutor> executor_;
  std::vector<std::unique_ptr<FakeRank>> ranks_;

  // Ranks before the group, the executor before both.
  void TearDown() override {
    executor_.reset();
    ranks_.clear();
    leader_.reset();
  }
};

TEST_F(LeaderTest, RefusesNothingToDo) {
  EXPECT_THAT(Leader::make({.ranks = 0}).error().message, HasSubstr("at least 1"));
  EXPECT_THAT(Leader::make({.transfers = 0}).error().message, HasSubstr("at least one"));
}

TEST_F(LeaderTest, RanksWaitForTheConfigurationAndAreReadyAfterIt) {
  Result<std::unique_ptr<Leader>> made = Leader::make({.ranks = 2, .heartbeat = milliseconds(77)});
  ASSERT_TRUE(made.has_value());
  Leader& group = **made;
  FakeRank early(group, 1);
  EXPECT_THAT(group.wait_for_ranks(Duration(0)).error().message,
              HasSubstr("not all 2 ranks are ready: rank 0: it has not connected yet; rank 1: it is not ready yet"));
  ManagerConfig config;
  config.model.name = "of-the-test";
  group.open(config);
  const auto welcome = early.next<RankWelcome>();
  EXPECT_EQ(welcome.generation, 1U);
  EXPECT_EQ(welcome.heartbeat, milliseconds(77));
  EXPECT_EQ(welcome.config, config.to_toml());
  early.send(RankReady{.block_bytes = 4096, .is_reserved = false});
  const auto late = FakeRank::ready(group, 0);
  EXPECT_TRUE(group.wait_for_ranks(kPatience).has_value());
  const std::vector<RankStatus> status = group.status();
  EXPECT_TRUE(status[1].is_there);
  EXPECT_EQ(status[1].generation, 1U);
  EXPECT_EQ(status[1].block_bytes, 4096U);
  EXPECT_EQ(status[1].transfers, 0U);
  EXPECT_FALSE(status[1].is_reserved);
  EXPECT_TRUE(status[0].is_reserved);
}

TEST_F(LeaderTest, EveryRankGetsTheCopyAndTheBlockIsDoneWhenAllAre) {
  make_ready(8);
  submit("a", down_, 3);
  for (std::uint32_t rank = 0; rank < 8; ++rank) {
    const auto copy = ranks_[rank]->next<RankTransfer>();
    EXPECT_EQ(copy.pairs.size(), 3U);
    EXPECT_FALSE(log_.is_done("a"));
    ranks_[rank]->answer(all_done(copy));
  }
  EXPECT_TRUE(log_.outcome("a").all_done());
  log_.wait_settled("a");
}

TEST_F(LeaderTest, RefusesPlansThatRanksDoNotCarryOut) {
  make(1);
  EXPECT_FALSE(executor_->can_move(*testing::small_plan()));
  const Result<TransferId> refused = executor_->submit(log_.transfer("a", testing::small_plan(), 1));
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(executor_->submit(log_.transfer("a", nullptr, 1)).has_value());
  EXPECT_EQ(executor_->describe(), "copies by 1 rank");
  EXPECT_EQ(executor_->load().limit, 64U);
}

TEST_F(LeaderTest, ACopyWithoutItsRanksFailsAtOnce) {
  make(2);
  const auto only = FakeRank::ready(*leader_, 0);
  submit("a", down_, 1);
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("failed: rank 1 is not connected: it has not connected yet"));
  log_.wait_settled("a");
}

TEST_F(LeaderTest, ACopyCarriesTheMarkOfItsTransfer) {
  make_ready(1);
  Transfer save = log_.transfer("save", down_, 2);
  save.not_before = StepMark::computed(7);
  ASSERT_TRUE(executor_->submit(std::move(save)).has_value());
  EXPECT_EQ(ranks_[0]->next<RankTransfer>().not_before, StepMark::computed(7));
  Transfer earlier = log_.transfer("earlier", down_, 2);  // of the same blocks
  earlier.not_before = StepMark::begun(7);
  ASSERT_TRUE(executor_->submit(std::move(earlier)).has_value());
  EXPECT_EQ(ranks_[0]->next<RankTransfer>().not_before, StepMark::begun(7));
  submit("no device", rank_plan(MemoryKind::kFile, MemoryKind::kPinned), 2);
  EXPECT_EQ(ranks_[0]->next<RankTransfer>().not_before, StepMark());
}

TEST_F(LeaderTest, NoticesComeInOrderWithCopies) {
  make_ready(2);
  const RankBroadcast before{{std::byte{1}}};
  const RankBroadcast after{{std::byte{2}}};
  leader_->broadcast(before);
  submit("a", down_, 1);
  leader_->broadcast(after);
  for (const auto& rank : ranks_) {
    EXPECT_EQ(rank->next<RankBroadcast>().bytes, before.bytes);
    rank->answer(all_done(rank->next<RankTransfer>()));
    EXPECT_EQ(rank->next<RankBroadcast>().bytes, after.bytes);
  }
  log_.wait_settled("a");
}

TEST_F(LeaderTest, CancelReachesTheRanks) {
  make_ready(2);
  const TransferId id = submit("a", down_, 1);
  std::vector<RankTransfer> copies;
  for (const auto& rank : ranks_) {
    copies.push_back(rank->next<RankTransfer>());
  }
  executor_->cancel(id);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ranks_[i]->next<RankCancel>().id, copies[i].id);
    RankTransferOutcome answer = all_failed(copies[i], "it was taken back");
    answer.states[0] = BlockState::kCancelled;
    ranks_[i]->answer(answer);
  }
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kCancelled));
  log_.wait_settled("a");
}

TEST_F(LeaderTest, ARankThatDiesFailsItsCopiesAndTheOthersAreCancelled) {
  make_ready(2);
  submit("a", down_, 2);
  const auto copy = ranks_[0]->next<RankTransfer>();
  ranks_[1]->next<RankTransfer>();
  ranks_[1]->leave();
  EXPECT_THAT(log_.states("a"), Each(BlockState::kFailed));
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 1 is gone: its process has ended"));
  EXPECT_EQ(ranks_[0]->next<RankCancel>().id, copy.id);
  EXPECT_FALSE(log_.is_settled("a"));
  ranks_[0]->answer(all_done(copy));
  log_.wait_settled("a");
  EXPECT_THAT(changes_.wait_for(3).back(), "rank 1 generation 1 is gone: its process has ended");

  submit("later", down_, 1);
  EXPECT_THAT(log_.outcome("later").error, HasSubstr("rank 1 is not connected: its process has ended"));
  ranks_[1] = FakeRank::ready(*leader_, 1);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(leader_->status()[1].generation, 2U);
  EXPECT_EQ(changes_.wait_for(4).back(), "rank 1 generation 2 is there");
  submit("again", down_, 1);
  for (const auto& rank : ranks_) {
    rank->answer(all_done(rank->next<RankTransfer>()));
  }
  EXPECT_TRUE(log_.outcome("again").all_done());
}

TEST_F(LeaderTest, ARankThatCameBackDoesNotServeHostMemoryOfBefore) {
  make_ready(1);
  submit("down", down_, 1);
  ranks_[0]->answer(all_done(ranks_[0]->next<RankTransfer>()));
  log_.wait_settled("down");
  ranks_[0]->leave();
  ranks_[0] = FakeRank::ready(*leader_, 0);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  submit("up", up_, 1);
  EXPECT_THAT(log_.states("up"), ElementsAre(BlockState::kMismatch));
  submit("from disk", rank_plan(MemoryKind::kFile, MemoryKind::kDevice), 1);
  ranks_[0]->answer(all_done(ranks_[0]->next<RankTransfer>()));
  EXPECT_TRUE(log_.outcome("from disk").all_done());
}

TEST_F(LeaderTest, WhatAnotherGenerationSaysIsNotTaken) {
  make_ready(1);
  submit("a", down_, 1);
  const auto copy = ranks_[0]->next<RankTransfer>();
  ranks_[0]->send_as(2, all_done(copy));
  ranks_[0]->send_as(0, all_done(copy));
  ranks_[0]->send(all_failed(copy, "the truth"));
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 0: the truth"));
  ranks_[0]->send_as(2, RankSettled{copy.id});
  ranks_[0]->send(RankSettled{copy.id});
  log_.wait_settled("a");
}

TEST_F(LeaderTest, ARankThatAnswersAnUnknownTransferIsDisconnected) {
  make_ready(1);
  submit("a", down_, 1);
  const auto copy = ranks_[0]->next<RankTransfer>();
  RankTransferOutcome wrong = all_done(copy);
  wrong.states.push_back(BlockState::kDone);
  ranks_[0]->send(wrong);
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 0 is gone: it answers for 2 blocks, but the transfer has 1"));
  EXPECT_THAT(ranks_[0]->next<RankRefusal>().reason, HasSubstr("it answers for 2 blocks"));
  EXPECT_FALSE(log_.is_settled("a"));
  EXPECT_EQ(leader_->status()[0].transfers, 1U);
  ranks_[0]->leave();  // none of its transfers is in flight
  log_.wait_settled("a");
}

TEST_F(LeaderTest, TwoOfOneRankAreOneTooMany) {
  make_ready(2);
  const auto ignore = [](std::uint32_t /*generation*/, const RankMessage& /*message*/) {};
  const auto second = leader_->join({.rank = 1, .ranks = 2}, ignore);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_THAT(second.error().message, HasSubstr("rank 1 is already connected from this process"));
  EXPECT_EQ(leader_->join({.rank = 2, .ranks = 2}, ignore).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(leader_->status()[1].is_there);
}

TEST_F(LeaderTest, AHungRankExpiresAndSettlesWhenItHasAnswered) {
  make_ready(2, manual_);
  submit("a", down_, 1, TimePoint(milliseconds(100)));
  const auto copy = ranks_[0]->next<RankTransfer>();
  EXPECT_EQ(copy.time_left, milliseconds(100));
  ranks_[0]->answer(all_done(copy));
  ranks_[1]->next<RankTransfer>();
  manual_.advance(milliseconds(100));
  executor_->check_deadlines();
  EXPECT_THAT(log_.states("a"), ElementsAre(BlockState::kExpired));
  EXPECT_EQ(ranks_[1]->next<RankCancel>().id, copy.id);
  EXPECT_FALSE(log_.is_settled("a"));
  ranks_[1]->answer(all_done(copy));
  log_.wait_settled("a");
}

TEST_F(LeaderTest, ASilentRankIsGoneAndItsTransfersMayStillRun) {
  make_ready(2, manual_);
  ranks_[1]->keep_pings();
  submit("a", down_, 1);
  const auto copy = ranks_[0]->next<RankTransfer>();
  ranks_[1]->next<RankTransfer>();
  for (int beat = 0; beat < 11; ++beat) {
    EXPECT_FALSE(log_.is_done("a"));
    manual_.advance(milliseconds(500));
    executor_->check_deadlines();
    if (beat < 10) {
      ranks_[1]->next<RankPing>();
    }
  }
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 1 is gone: it said nothing for 5000 ms"));
  EXPECT_THAT(ranks_[1]->next<RankRefusal>().reason, HasSubstr("it said nothing for 5000 ms"));
  EXPECT_EQ(ranks_[0]->next<RankCancel>().id, copy.id);
  ranks_[0]->answer(all_done(copy));
  ranks_[1]->answer(all_done(copy));  // too late: it is no longer the rank
  EXPECT_TRUE(leader_->status()[0].is_there);
  EXPECT_FALSE(leader_->status()[1].is_there);

  // Another process in its place says nothing about the transfers of the first one.
  const auto second = FakeRank::ready(*leader_, 1);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(leader_->status()[1].transfers, 1U);
  EXPECT_FALSE(log_.is_settled("a"));
  ranks_[1]->leave();
  log_.wait_settled("a");
}

TEST_F(LeaderTest, AnExecutorThatEndsGivesUpOnThoseThatDoNotAnswer) {
  make_ready(2);
  submit("a", down_, 1);
  const auto copy = ranks_[0]->next<RankTransfer>();
  ranks_[1]->next<RankTransfer>();
  ranks_[0]->answer(all_done(copy));
  executor_.reset();
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("the leader ended before the ranks had answered"));
  EXPECT_TRUE(log_.is_settled("a"));
  EXPECT_EQ(ranks_[1]->next<RankCancel>().id, copy.id);
  EXPECT_THAT(ranks_[1]->next<RankRefusal>().reason, HasSubstr("still had transfers in flight"));
  EXPECT_TRUE(leader_->status()[0].is_there);
  EXPECT_FALSE(leader_->status()[1].is_there);
  executor_ = leader_->make_executor();
  submit("b", down_, 1);
  EXPECT_THAT(log_.outcome("b").error, HasSubstr("rank 1 is not connected"));
}

TEST_F(LeaderTest, ManyTransfersFromManyThreads) {
  constexpr std::uint32_t kRanks = 4;
  constexpr int kThreads = 4;
  constexpr int kEach = 200;
  make(kRanks);
  // Answers from the thread that delivers; one rank fails every fifth copy.
  struct Quick {
    std::unique_ptr<Leader::Port> port;
    std::atomic<Leader::Port*> shared = nullptr;
  };
  std::vector<Quick> quick(kRanks);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const RankClaim claim{.rank = rank, .ranks = kRanks};
    auto port = leader_->join(claim, [&quick, rank](std::uint32_t generation, const RankMessage& message) {
      Leader::Port* answers = nullptr;
      while (answers == nullptr) {
        answers = quick[rank].shared;
      }
      if (std::holds_alternative<RankWelcome>(message)) {
        answers->send(generation, RankReady{});
      } else if (const auto* copy = std::get_if<RankTransfer>(&message)) {
        const bool fails = rank == 2 && copy->pairs.size() % 5 == 0;
        answers->send(generation, fails ? all_failed(*copy, "by rule") : all_done(*copy));
        answers->send(generation, RankSettled{copy->id});
      } else if (const auto* ping = std::get_if<RankPing>(&message)) {
        answers->send(generation, RankPong{ping->number});
      }
    });
    ASSERT_TRUE(port.has_value());
    quick[rank].port = *std::move(port);
    quick[rank].shared = quick[rank].port.get();
  }
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  std::atomic<int> done = 0;
  std::atomic<int> failed = 0;
  std::atomic<int> settled = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach;) {
        Transfer transfer{.plan = down_,
                          .blocks = testing::same_blocks(static_cast<std::uint32_t>(1 + i % 20)),
                          .done = [&](TransferOutcome&& outcome) { outcome.all_done() ? ++done : ++failed; },
                          .settled = [&] { ++settled; }};
        const Result<TransferId> id = executor_->submit(std::move(transfer));
        if (id) {
          ++i;
        } else {
          ASSERT_EQ(id.error().code, ErrorCode::kExhausted);
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  executor_.reset();
  EXPECT_EQ(settled, kThreads * kEach);
  EXPECT_EQ(done + failed, kThreads * kEach);
  for (Quick& rank : quick) {
    rank.port.reset();
  }
}

}  // namespace
}  // namespace cairn
