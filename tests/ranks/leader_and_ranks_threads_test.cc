// A leader with real ranks, all in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "cairn/leader/leader.h"
#include "cairn/leader/leader_testing.h"
#include "cairn/rank/rank.h"
#include "cairn/rank/rank_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::holds;
using testing::in_time;
using testing::kPatience;
using testing::one_group;
using testing::rank_config;
using testing::rank_plan;
using testing::TransferLog;
using testing::write_block;

class LeaderAndRanksTest : public ::testing::Test {
 protected:
  void make_leader(std::uint32_t ranks) {
    ranks_ = ranks;
    leader_ = *Leader::make({.ranks = ranks, .transfers = 64});
    executor_ = leader_->make_executor();
  }
  void open() { leader_->open(rank_config(folder_.in("disk"), ranks_)); }
  Result<std::unique_ptr<Rank>> join(std::uint32_t rank, const LayoutGroups& device) {
    return Rank::join(*leader_, {.rank = rank,
                                 .ranks = ranks_,
                                 .device = device,
                                 .on_broadcast =
                                     [this](const LeaderId& leader, std::span<const std::byte> bytes) {
                                       EXPECT_EQ(leader, leader_->id());
                                       const std::lock_guard lock(mutex_);
                                       broadcasts_.push_back(bytes.size());
                                       changed_.notify_all();
                                     },
                                 .first_connection = first_connection_});
  }
  void join_all() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      devices_.push_back(one_group());
      Result<std::unique_ptr<Rank>> worker = join(rank, devices_.back());
      ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
      workers_.push_back(*std::move(worker));
    }
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  }
  // Block i is known by the tag i.
  TransferOutcome move(MemoryKind from, MemoryKind to, const std::vector<BlockPair>& pairs) {
    const std::string name = std::to_string(++moves_);
    submit(name, from, to, pairs);
    TransferOutcome outcome = log_.outcome(name);
    log_.wait_settled(name);
    return outcome;
  }
  void submit(const std::string& name, MemoryKind from, MemoryKind to, const std::vector<BlockPair>& pairs,
              StepMark not_before = {}) {
    Transfer transfer = log_.transfer(name, rank_plan(from, to), 0, in_time());
    transfer.not_before = not_before;
    for (const BlockPair& pair : pairs) {
      transfer.blocks.push_back({.pair = pair, .tag = {.high = transfer.blocks.size(), .low = 1}});
    }
    ASSERT_TRUE(executor_->submit(std::move(transfer)).has_value());
  }
  static std::vector<Checksum> checksums(const TransferOutcome& outcome) {
    EXPECT_EQ(outcome.error, "");
    std::vector<Checksum> all;
    for (const BlockOutcome& block : outcome.blocks) {
      all.push_back(block.checksum);
    }
    return all;
  }

  TestFolder folder_;
  std::uint32_t ranks_ = 1;
  Duration first_connection_ = testing::kRankPatience;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> broadcasts_;
  TransferLog log_;
  int moves_ = 0;
  std::vector<LayoutGroups> devices_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<TransferExecutor> executor_;
  std::vector<std::unique_ptr<Rank>> workers_;
};

TEST_F(LeaderAndRanksTest, EachMovesItsPart) {
  make_leader(2);
  open();
  join_all();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    write_block(devices_[rank], 0, 10 + rank);
    write_block(devices_[rank], 1, 20 + rank);
  }
  const auto sums = checksums(move(MemoryKind::kDevice, MemoryKind::kPinned, {{0, 4}, {1, 5}}));
  EXPECT_EQ(checksums(move(MemoryKind::kPinned, MemoryKind::kFile, {{4, 2}, {5, 3}})), sums);
  EXPECT_EQ(checksums(move(MemoryKind::kFile, MemoryKind::kDevice, {{2, 8}, {3, 9}})), sums);
  EXPECT_EQ(checksums(move(MemoryKind::kPinned, MemoryKind::kDevice, {{4, 10}, {5, 11}})), sums);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    for (const std::uint32_t block : {8U, 10U}) {
      EXPECT_TRUE(holds(devices_[rank], block, 10 + rank));
      EXPECT_TRUE(holds(devices_[rank], block + 1, 20 + rank));
    }
    EXPECT_EQ(workers_[rank]->state().done, 8U);
    EXPECT_TRUE(workers_[rank]->state().is_connected);
  }
  EXPECT_EQ(leader_->status()[1].block_bytes, testing::kRankShape.block_bytes());
}

TEST_F(LeaderAndRanksTest, CopiesWaitForTheSlowestRank) {
  make_leader(2);
  open();
  join_all();
  submit("save", MemoryKind::kDevice, MemoryKind::kPinned, {{0, 0}}, StepMark::computed(1));
  workers_[0]->reached(StepMark::computed(1));
  static_cast<void>(move(MemoryKind::kPinned, MemoryKind::kFile, {{1, 1}}));
  EXPECT_FALSE(log_.is_done("save"));
  workers_[1]->reached(StepMark::computed(1));
  EXPECT_THAT(log_.states("save"), Each(BlockState::kDone));
}

TEST_F(LeaderAndRanksTest, BroadcastsCome) {
  make_leader(1);
  open();
  join_all();
  leader_->broadcast({.bytes = std::vector<std::byte>(3)});
  leader_->broadcast({.bytes = std::vector<std::byte>(5)});
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return broadcasts_.size() == 2; }));
  EXPECT_EQ(broadcasts_, (std::vector<std::size_t>{3, 5}));
}

TEST_F(LeaderAndRanksTest, ARankThatGoesAndComesBackFindsItsFile) {
  make_leader(2);
  open();
  join_all();
  write_block(devices_[1], 0, 7);
  const auto sums = checksums(move(MemoryKind::kDevice, MemoryKind::kFile, {{0, 3}}));
  workers_[1].reset();
  EXPECT_NE(move(MemoryKind::kFile, MemoryKind::kDevice, {{3, 1}}).error, "");
  devices_[1] = one_group();
  Result<std::unique_ptr<Rank>> again = join(1, devices_[1]);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_EQ((*again)->state().generation, 2U);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(checksums(move(MemoryKind::kFile, MemoryKind::kDevice, {{3, 1}})), sums);
  EXPECT_TRUE(holds(devices_[1], 1, 7));
}

TEST_F(LeaderAndRanksTest, WhatIsNotItsShareIsRefused) {
  make_leader(1);
  open();
  KvShape shape = testing::kRankShape;
  shape.heads = 8;
  const auto refused = join(0, testing::device_groups({{"all", shape, {0, 1, 2}}}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("8 heads where it is 2"));
  join_all();  // the place is free for one that fits
}

TEST_F(LeaderAndRanksTest, APlaceIsTakenOnce) {
  make_leader(1);
  open();
  join_all();
  first_connection_ = milliseconds(300);
  const auto refused = join(0, one_group());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0 is there already"));
  ranks_ = 0;
  EXPECT_THAT(join(0, one_group()).error().message, HasSubstr("rank 0 of 0"));
}

TEST_F(LeaderAndRanksTest, ThoseThatComeEarlyWaitForTheLeader) {
  make_leader(1);
  std::future<void> joined = std::async(std::launch::async, [this] { join_all(); });
  open();
  joined.get();
  EXPECT_EQ(workers_.size(), 1U);
}

// Over a socket.
TEST(LeaderAndRanksOverASocketTest, ALeaderGoesAndAnotherComesInItsPlace) {
  const TestFolder folder;
  const RankAddress address{RankAddress::Unix{folder.in("leader")}};
  const ManagerConfig config = rank_config(folder.in("disk"), 2);
  std::vector<LayoutGroups> devices = {one_group(), one_group()};
  std::vector<std::unique_ptr<Rank>> workers(2);
  std::vector<Checksum> saved;
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto leader = *Leader::make({.ranks = 2, .address = address, .secret = "s", .transfers = 8});
    leader->open(config);
    for (std::uint32_t rank = 0; rank < 2 && round == 0; ++rank) {
      write_block(devices[rank], 0, rank);
      Result<std::unique_ptr<Rank>> worker =
          Rank::connect(address, {.rank = rank, .ranks = 2, .device = devices[rank], .secret = "s"});
      ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
      workers[rank] = *std::move(worker);
    }
    const Status ready = leader->wait_for_ranks(kPatience);
    ASSERT_TRUE(ready.has_value()) << ready.error().message;
    for (const std::unique_ptr<Rank>& worker : workers) {
      EXPECT_TRUE(worker->follow(leader->id(), in_time()));
    }
    const std::unique_ptr<TransferExecutor> executor = leader->make_executor();
    TransferLog log;
    const auto move = [&](const std::string& name, MemoryKind from, MemoryKind to, BlockPair pair) {
      Transfer transfer = log.transfer(name, rank_plan(from, to), 1, in_time());
      transfer.blocks.front().pair = pair;
      EXPECT_TRUE(executor->submit(std::move(transfer)).has_value());
      const TransferOutcome outcome = log.outcome(name);
      EXPECT_EQ(outcome.error, "");
      log.wait_settled(name);
      return outcome.blocks.front().checksum;
    };
    if (round == 0) {
      saved.push_back(move("save", MemoryKind::kDevice, MemoryKind::kFile, {0, 5}));
    }
    const auto block = static_cast<std::uint32_t>(1 + round);
    EXPECT_EQ(move("load", MemoryKind::kFile, MemoryKind::kDevice, {5, block}), saved.front());
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(holds(devices[rank], block, rank));
    }
  }
}

}  // namespace
}  // namespace cairn
