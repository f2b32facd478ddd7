// A leader with real ranks, all in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>

#include "cairn/leader/leader.h"
#include "cairn/leader/leader_testing.h"
#include "cairn/rank/rank.h"
#include "cairn/rank/rank_testing.h"
#include "cairn/transfer/row_sums.h"

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
  void make_leader(RankGrid ranks) {
    ranks_ = ranks;
    leader_ = *Leader::make({.ranks = ranks, .transfers = 64});
    executor_ = leader_->make_executor();
  }
  ManagerConfig config() const {
    ManagerConfig config = rank_config(folder_.in("disk"), ranks_.tensor);
    config.model.layers = 3 * ranks_.pipeline;
    config.model.heads = heads_ != 0 ? heads_ : config.model.heads;
    return config;
  }
  void open() { leader_->open(config()); }
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
    for (std::uint32_t rank = 0; rank < ranks_.count(); ++rank) {
      devices_.push_back(heads_ == 1 ? one_head() : one_group());
      Result<std::unique_ptr<Rank>> worker = join(rank, devices_.back());
      ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
      workers_.push_back(*std::move(worker));
    }
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  }
  static LayoutGroups one_head() {
    KvShape shape = testing::kRankShape;
    shape.heads = 1;
    return testing::device_groups({{"all", shape, {0, 1, 2}}});
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
  RankGrid ranks_ = 1;
  std::uint32_t heads_ = 0;  // of the model; 0: two for each tensor rank
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
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0 is already connected"));
  ranks_ = RankGrid(0);
  EXPECT_THAT(join(0, one_group()).error().message, HasSubstr("at least 1 of each"));
}

TEST_F(LeaderAndRanksTest, ThoseThatComeEarlyWaitForTheLeader) {
  make_leader(1);
  std::future<void> joined = std::async(std::launch::async, [this] { join_all(); });
  open();
  joined.get();
  EXPECT_EQ(workers_.size(), 1U);
}

// Ranks of two stages: the block is moved when all have moved their part, and its checksum is that of the whole.
TEST_F(LeaderAndRanksTest, StagesMoveTheirLayers) {
  make_leader({2, 2});
  open();
  join_all();
  // Writes the parts of one block of the whole model.
  KvShape whole = testing::kRankShape;
  whole.layers = 6;
  whole.heads = 4;
  const testing::TestLayout model = testing::TestLayout::make({whole, Arrangement::kContiguousNhd, 16, 1});
  const testing::TestLayout copy = testing::TestLayout::make({whole, Arrangement::kContiguousNhd, 16, 1});
  write_pattern(*model.layout(), 0, 33);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const RankShare share = *RankShare::make(ranks_, rank, whole);
    const BlockLayout& device = *devices_[rank].layouts().front();
    for (std::uint64_t row = 0; row < device.shape().rows(); ++row) {
      const auto head = static_cast<std::uint32_t>(row % 2);
      const auto token = static_cast<std::uint32_t>(row / 2 % 4);
      const auto kv = static_cast<std::uint32_t>(row / 8 % 2);
      const auto layer = static_cast<std::uint32_t>(row / 16);
      const auto to = device.address(0, layer, kv, token, head);
      const auto from =
          model.layout()->address(0, share.layers.first + layer, kv, token, share.heads.first_head + head);
      std::memcpy(device.regions()[to.region]->base() + to.offset,
                  model.layout()->regions()[from.region]->base() + from.offset, whole.row_bytes());
    }
  }
  Transfer transfer = log_.transfer(
      "save",
      testing::plan_between(
          testing::TestLayout::make({whole, Arrangement::kContiguousNhd, 16, 1}, MemoryKind::kDevice).layout(),
          testing::TestLayout::make({whole, Arrangement::kContiguousNhd, 16, 1}, MemoryKind::kPinned).layout()),
      1);
  const BlockTag tag = transfer.blocks[0].tag;
  ASSERT_TRUE(executor_->submit(std::move(transfer)).has_value());
  EXPECT_EQ(log_.outcome("save").error, "");
  const BlockSums sums = sum_block(**CopyPlan::make(model.layout(), copy.layout()), PlanSide::kSource, 0);
  EXPECT_EQ(log_.outcome("save").blocks[0].checksum, finish(sums, whole.block_bytes(), tag));
  EXPECT_EQ(leader_->status()[3].layers, (LayerRange{3, 3}));
  log_.wait_settled("save");
  static_cast<void>(move(MemoryKind::kPinned, MemoryKind::kDevice, {{0, 5}}));
  for (const LayoutGroups& device : devices_) {
    const BlockLayout& layout = *device.layouts().front();
    const CopyPlanPtr within = *CopyPlan::make(device.layouts().front(), testing::one_group().layouts().front());
    EXPECT_EQ(sum_block(*within, PlanSide::kSource, 5), sum_block(*within, PlanSide::kSource, 0)) << layout.blocks();
  }
}

// Replicas hold each block once between them: one of them saves it, all of them load it.
TEST_F(LeaderAndRanksTest, ReplicasShareTheirMemoryAndFile) {
  heads_ = 1;
  make_leader(4);
  open();
  join_all();
  for (std::uint32_t block = 0; block < 8; ++block) {
    for (const LayoutGroups& device : devices_) {
      write_block(device, block, 50 + block);
    }
  }
  const std::vector<BlockPair> down = {{0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}};
  const auto sums = checksums(move(MemoryKind::kDevice, MemoryKind::kPinned, down));
  EXPECT_EQ(workers_[0]->state().done, 2U) << "each block is saved by one of them";
  EXPECT_EQ(workers_[1]->state().done, 1U);
  EXPECT_EQ(workers_[2]->state().done, 1U);
  EXPECT_EQ(workers_[3]->state().done, 1U);
  const std::vector<BlockPair> load = {{8, 8}, {9, 9}, {10, 10}, {11, 11}, {12, 12}};
  EXPECT_EQ(checksums(move(MemoryKind::kPinned, MemoryKind::kDevice, load)), sums);
  EXPECT_EQ(checksums(move(MemoryKind::kPinned, MemoryKind::kFile, {{8, 1}, {9, 2}, {10, 3}, {11, 4}, {12, 5}})), sums);
  EXPECT_EQ(checksums(move(MemoryKind::kFile, MemoryKind::kPinned, {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}})), sums);
  EXPECT_EQ(checksums(move(MemoryKind::kFile, MemoryKind::kDevice, {{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}})), sums);
  for (const LayoutGroups& device : devices_) {
    for (std::uint32_t block = 0; block < 5; ++block) {
      EXPECT_TRUE(holds(device, 8 + block, 50 + block));
      EXPECT_TRUE(holds(device, block, 50 + block));
    }
  }
  EXPECT_TRUE(std::filesystem::exists(folder_.in("disk.l0-2.h0-0")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1) << "one file for all";
}

// The bytes of replicas may differ by rounding; the one that saves a block gives it to all.
TEST_F(LeaderAndRanksTest, WhatOneReplicaSavesAllLoad) {
  heads_ = 1;
  make_leader(2);
  open();
  join_all();
  write_block(devices_[0], 0, 1);
  write_block(devices_[1], 0, 2);
  const auto sums = checksums(move(MemoryKind::kDevice, MemoryKind::kPinned, {{0, 5}}));  // block 5: of replica 1
  EXPECT_EQ(checksums(move(MemoryKind::kPinned, MemoryKind::kDevice, {{5, 3}})), sums);
  EXPECT_TRUE(holds(devices_[0], 3, 2));
  EXPECT_TRUE(holds(devices_[1], 3, 2));
}

// What is in shared host memory survives a replica that goes, but is not read any more: the rules are those of ranks with
// memory of their own. The file is the same.
TEST_F(LeaderAndRanksTest, AReplicaThatGoesAndComesBackSharesTheFileAgain) {
  heads_ = 1;
  make_leader(2);
  open();
  join_all();
  for (const std::uint32_t gone : {0U, 1U}) {
    write_block(devices_[0], 0, 7 + gone);
    write_block(devices_[1], 0, 7 + gone);
    const auto sums = checksums(move(MemoryKind::kDevice, MemoryKind::kFile, {{0, 3}}));
    static_cast<void>(move(MemoryKind::kDevice, MemoryKind::kPinned, {{0, 2}}));
    workers_[gone].reset();
    EXPECT_NE(move(MemoryKind::kFile, MemoryKind::kDevice, {{3, 1}}).error, "");
    devices_[gone] = one_head();
    Result<std::unique_ptr<Rank>> again = join(gone, devices_[gone]);
    ASSERT_TRUE(again.has_value()) << again.error().to_string();
    workers_[gone] = *std::move(again);
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
    EXPECT_EQ(checksums(move(MemoryKind::kFile, MemoryKind::kDevice, {{3, 1}})), sums);
    EXPECT_TRUE(holds(devices_[0], 1, 7 + gone));
    EXPECT_TRUE(holds(devices_[1], 1, 7 + gone));
    EXPECT_EQ(move(MemoryKind::kPinned, MemoryKind::kDevice, {{2, 4}}).blocks[0].state, BlockState::kMismatch);
  }
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

// Over a Unix socket the memory comes as a descriptor; a leader that is started again brings other memory.
TEST(LeaderAndRanksOverASocketTest, ReplicasGetTheirMemoryFromEveryLeader) {
  const TestFolder folder;
  const RankAddress address{RankAddress::Unix{folder.in("leader")}};
  ManagerConfig config = rank_config(folder.in("disk"), 1);
  std::vector<LayoutGroups> devices = {one_group(), one_group(), one_group(), one_group()};
  config.model.heads = 2;
  KvShape one_head = testing::kRankShape;
  one_head.heads = 1;
  for (LayoutGroups& device : devices) {
    device = testing::device_groups({{"all", one_head, {0, 1, 2}}});
  }
  std::vector<std::unique_ptr<Rank>> workers(4);
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto leader = *Leader::make({.ranks = 4, .address = address, .transfers = 8});
    leader->open(config);
    for (std::uint32_t rank = 0; rank < 4 && round == 0; ++rank) {
      Result<std::unique_ptr<Rank>> worker =
          Rank::connect(address, {.rank = rank, .ranks = 4, .device = devices[rank]});
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
      EXPECT_EQ(log.outcome(name).error, "");
      log.wait_settled(name);
    };
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      write_block(devices[rank], 0, 10 * round + rank / 2);  // ranks 0 and 1 hold one head, 2 and 3 the other
    }
    const auto block = static_cast<std::uint32_t>(1 + round);
    move("save", MemoryKind::kDevice, MemoryKind::kPinned, {0, block});
    move("load", MemoryKind::kPinned, MemoryKind::kDevice, {block, block});
    move("store", MemoryKind::kPinned, MemoryKind::kFile, {block, block});
    move("fetch", MemoryKind::kFile, MemoryKind::kDevice, {block, 8});
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(holds(devices[rank], block, 10 * round + rank / 2)) << rank;
      EXPECT_TRUE(holds(devices[rank], 8, 10 * round + rank / 2)) << rank;
    }
  }
}

// Over TCP nothing is shared: each replica keeps a copy, in a file of its own.
TEST(LeaderAndRanksOverASocketTest, ReplicasOverTcpKeepCopies) {
  const TestFolder folder;
  ManagerConfig config = rank_config(folder.in("disk"), 1);
  config.model.heads = 1;
  KvShape shape = testing::kRankShape;
  shape.heads = 1;
  const auto leader =
      *Leader::make({.ranks = 2, .address = *RankAddress::parse("tcp:127.0.0.1:0"), .secret = "s", .transfers = 8});
  leader->open(config);
  std::vector<LayoutGroups> devices;
  std::vector<std::unique_ptr<Rank>> workers;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    devices.push_back(testing::device_groups({{"all", shape, {0, 1, 2}}}));
    write_block(devices[rank], 0, rank);  // they may differ: each copy is checked for itself
    Result<std::unique_ptr<Rank>> worker =
        Rank::connect(*leader->address(), {.rank = rank, .ranks = 2, .device = devices[rank], .secret = "s"});
    ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
    workers.push_back(*std::move(worker));
  }
  ASSERT_TRUE(leader->wait_for_ranks(kPatience).has_value());
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
  const Checksum saved = move("save", MemoryKind::kDevice, MemoryKind::kFile, {0, 5});
  EXPECT_EQ(move("load", MemoryKind::kFile, MemoryKind::kDevice, {5, 1}), saved);
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(holds(devices[rank], 1, rank));
  }
  EXPECT_TRUE(std::filesystem::exists(folder.in("disk.l0-2.h0-0")));
  EXPECT_TRUE(std::filesystem::exists(folder.in("disk.l0-2.h0-0.c1")));
}

}  // namespace
}  // namespace cairn
