#include "cairn/ranks/rank_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "cairn/ranks/rank_group_testing.h"
#include "cairn/ranks/rank_proof.h"
#include "cairn/ranks/rank_socket.h"
#include "cairn/ranks/rank_work_testing.h"
#include "cairn/transfer/stuck_executor_testing.h"

namespace {

std::mutex flushes_mutex;
std::map<ino_t, int> flushes;

int flushes_of(ino_t file) {
  const std::lock_guard lock(flushes_mutex);
  return flushes[file];
}

}  // namespace

// In the place of the system's: counts what is flushed, by its inode.
extern "C" int fdatasync(int file) {
  struct stat facts{};
  if (::fstat(file, &facts) == 0) {
    const std::lock_guard lock(flushes_mutex);
    ++flushes[facts.st_ino];
  }
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

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

// --- ranks of the leader's process ---

class JoinedRanksTest : public ::testing::Test {
 protected:
  void make_group(std::uint32_t ranks) {
    ranks_ = ranks;
    group_ = *RankGroup::make({.ranks = ranks, .transfers = 64});
    executor_ = group_->make_executor();
  }
  void open() { group_->open(rank_config(folder_.in("disk"), ranks_)); }
  Result<std::unique_ptr<RankWorker>> join(std::uint32_t rank, const LayoutGroups& device) {
    return RankWorker::join(*group_, {.rank = rank,
                                      .ranks = ranks_,
                                      .device = device,
                                      .notice =
                                          [this](const LeaderId& leader, std::span<const std::byte> bytes) {
                                            EXPECT_EQ(leader, group_->id());
                                            const std::lock_guard lock(mutex_);
                                            notices_.push_back(bytes.size());
                                            changed_.notify_all();
                                          },
                                      .first_connection = first_connection_});
  }
  void join_all() {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      devices_.push_back(one_group());
      Result<std::unique_ptr<RankWorker>> worker = join(rank, devices_.back());
      ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
      workers_.push_back(*std::move(worker));
    }
    ASSERT_TRUE(group_->wait_for_ranks(kPatience).has_value());
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
  std::vector<std::size_t> notices_;
  TransferLog log_;
  int moves_ = 0;
  std::vector<LayoutGroups> devices_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<TransferExecutor> executor_;
  std::vector<std::unique_ptr<RankWorker>> workers_;
};

TEST_F(JoinedRanksTest, EachMovesItsPart) {
  make_group(2);
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
  EXPECT_EQ(group_->status()[1].block_bytes, testing::kRankShape.block_bytes());
}

TEST_F(JoinedRanksTest, CopiesWaitForTheSlowestRank) {
  make_group(2);
  open();
  join_all();
  submit("save", MemoryKind::kDevice, MemoryKind::kPinned, {{0, 0}}, StepMark::computed(1));
  workers_[0]->reached(StepMark::computed(1));
  static_cast<void>(move(MemoryKind::kPinned, MemoryKind::kFile, {{1, 1}}));
  EXPECT_FALSE(log_.is_done("save"));
  workers_[1]->reached(StepMark::computed(1));
  EXPECT_THAT(log_.states("save"), Each(BlockState::kDone));
}

TEST_F(JoinedRanksTest, NoticesCome) {
  make_group(1);
  open();
  join_all();
  group_->tell({.bytes = std::vector<std::byte>(3)});
  group_->tell({.bytes = std::vector<std::byte>(5)});
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return notices_.size() == 2; }));
  EXPECT_EQ(notices_, (std::vector<std::size_t>{3, 5}));
}

TEST_F(JoinedRanksTest, ARankThatGoesAndComesBackFindsItsFile) {
  make_group(2);
  open();
  join_all();
  write_block(devices_[1], 0, 7);
  const auto sums = checksums(move(MemoryKind::kDevice, MemoryKind::kFile, {{0, 3}}));
  workers_[1].reset();
  EXPECT_NE(move(MemoryKind::kFile, MemoryKind::kDevice, {{3, 1}}).error, "");
  devices_[1] = one_group();
  Result<std::unique_ptr<RankWorker>> again = join(1, devices_[1]);
  ASSERT_TRUE(again.has_value()) << again.error().to_string();
  EXPECT_EQ((*again)->state().generation, 2U);
  ASSERT_TRUE(group_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(checksums(move(MemoryKind::kFile, MemoryKind::kDevice, {{3, 1}})), sums);
  EXPECT_TRUE(holds(devices_[1], 1, 7));
}

TEST_F(JoinedRanksTest, WhatIsNotItsShareIsRefused) {
  make_group(1);
  open();
  KvShape shape = testing::kRankShape;
  shape.heads = 8;
  const auto refused = join(0, testing::device_groups({{"all", shape, {0, 1, 2}}}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("8 heads where it is 2"));
  join_all();  // the place is free for one that fits
}

TEST_F(JoinedRanksTest, APlaceIsTakenOnce) {
  make_group(1);
  open();
  join_all();
  first_connection_ = milliseconds(300);
  const auto refused = join(0, one_group());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("rank 0 is there already"));
  ranks_ = 0;
  EXPECT_THAT(join(0, one_group()).error().message, HasSubstr("rank 0 of 0"));
}

TEST_F(JoinedRanksTest, ThoseThatComeEarlyWaitForTheLeader) {
  make_group(1);
  std::future<void> joined = std::async(std::launch::async, [this] { join_all(); });
  open();
  joined.get();
  EXPECT_EQ(workers_.size(), 1U);
}

// --- over sockets ---

// A leader that says what it is told to.
class HandLeader {
 public:
  explicit HandLeader(const RankAddress& address) : listener_(*RankListener::listen(address)) {}
  [[nodiscard]] const RankAddress& address() const { return listener_.address(); }

  [[nodiscard]] bool is_called(Duration longest) const {
    pollfd called{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&called, 1, static_cast<int>(longest / milliseconds(1))) == 1;
  }
  // Who calls is asked for its name.
  void accept() {
    ASSERT_TRUE(is_called(kPatience));
    Result<std::optional<RankSocket>> socket = listener_.accept();
    ASSERT_TRUE(socket && *socket);
    socket_.emplace(*std::move(*socket));
    challenge_.nonce = make_nonce();
    send(challenge_, 0);
    hello_ = next<RankHello>();
  }
  void welcome(std::uint32_t generation, const ManagerConfig& config, const std::string& secret = "s",
               Duration heartbeat = std::chrono::seconds(60)) {
    RankWelcome welcome{.leader = id_, .generation = generation, .heartbeat = heartbeat, .config = config.to_toml()};
    welcome.proof = proof_of(welcome, hello_, challenge_.nonce, secret);
    generation_ = generation;
    send(welcome, generation);
  }
  void send(const RankMessage& message) { send(message, generation_); }
  void send(const RankMessage& message, std::uint32_t generation) {
    ASSERT_TRUE(socket_->send(message, generation).has_value());
    ASSERT_FALSE(socket_->wants_write()) << "small messages go at once";
  }
  // The next message, which has to be of this kind and generation.
  template <typename Message>
  Message next() {
    Result<std::optional<RankDecoder::Received>> received = receive();
    if (!received) {
      ADD_FAILURE() << received.error().to_string();
      return {};
    }
    EXPECT_EQ((*received)->generation, generation_);
    if (auto* wanted = std::get_if<Message>(&(*received)->message)) {
      return std::move(*wanted);
    }
    ADD_FAILURE() << "something of kind " << (*received)->message.index() << " was sent";
    return {};
  }
  [[nodiscard]] bool is_hung_up() { return !receive(); }
  [[nodiscard]] const RankHello& hello() const { return hello_; }
  [[nodiscard]] const LeaderId& id() const { return id_; }
  void hang_up() {
    socket_.reset();
    generation_ = 0;
  }
  RankCopyDone copy(std::uint64_t id, CacheLevel from, CacheLevel to, BlockPair pair, StepMark not_before = {}) {
    ask(id, from, to, pair, not_before);
    RankCopyDone done = next<RankCopyDone>();
    EXPECT_EQ(next<RankSettled>().id, TransferId{id});
    return done;
  }
  void ask(std::uint64_t id, CacheLevel from, CacheLevel to, BlockPair pair, StepMark not_before = {}) {
    send(RankCopy{.id = TransferId{id},
                  .from = from,
                  .to = to,
                  .not_before = not_before,
                  .time_left = testing::kRankPatience,
                  .pairs = {pair},
                  .tags = {{.high = 1, .low = 2}}});
  }

 private:
  Result<std::optional<RankDecoder::Received>> receive() {
    for (;;) {
      Result<std::optional<RankDecoder::Received>> received = socket_->receive();
      if (!received || *received) {
        return received;
      }
      pollfd readable{.fd = socket_->fd(), .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, static_cast<int>(kPatience / milliseconds(1))) != 1) {
        ADD_FAILURE() << "nothing was sent";
        return fail(ErrorCode::kExpired, "nothing was sent");
      }
    }
  }

  const LeaderId id_ = make_leader_id();
  RankListener listener_;
  std::optional<RankSocket> socket_;
  RankChallenge challenge_;
  RankHello hello_;
  std::uint32_t generation_ = 0;
};

class ConnectedRankTest : public ::testing::Test {
 protected:
  RankWorker::Options options() {
    return {.rank = 1,
            .ranks = 2,
            .device = device_,
            .secret = "s",
            .around =
                [this](ExecutorKind kind, std::unique_ptr<TransferExecutor> inside) {
                  if (kind != ExecutorKind::kHost || !hangs_) {
                    return inside;
                  }
                  auto faulty = std::make_unique<FaultExecutor>(
                      steady_clock(), std::move(inside), FaultOptions{.rules = {{.fault = Fault::kHang, .at = 1}}});
                  faults_ = faulty.get();
                  return std::unique_ptr<TransferExecutor>(std::move(faulty));
                },
            .first_connection = first_connection_};
  }
  std::future<Result<std::unique_ptr<RankWorker>>> connect() {
    return std::async(std::launch::async, [this] { return RankWorker::connect(address_, options()); });
  }
  void connect_to(HandLeader& leader, Duration heartbeat = std::chrono::seconds(60)) {
    auto connected = connect();
    leader.accept();
    leader.welcome(1, config_, "s", heartbeat);
    leader.next<RankReady>();
    Result<std::unique_ptr<RankWorker>> worker = connected.get();
    ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
    worker_ = *std::move(worker);
  }
  void come_back(HandLeader& leader, std::uint32_t generation) {
    leader.accept();
    leader.welcome(generation, config_);
    leader.next<RankReady>();
  }

  TestFolder folder_;
  RankAddress address_{RankAddress::Unix{folder_.in("leader")}};
  const ManagerConfig config_ = rank_config(folder_.in("disk"), 2);
  const LayoutGroups device_ = one_group();
  Duration first_connection_ = testing::kRankPatience;
  bool hangs_ = false;
  std::atomic<FaultExecutor*> faults_ = nullptr;
  std::unique_ptr<RankWorker> worker_;
};

TEST_F(ConnectedRankTest, TalksAndCopies) {
  auto connected = connect();  // before there is a leader
  HandLeader leader(address_);
  leader.accept();
  EXPECT_EQ(leader.hello().rank, 1U);
  EXPECT_EQ(leader.hello().ranks, 2U);
  leader.welcome(5, config_);
  EXPECT_EQ(leader.next<RankReady>().block_bytes, testing::kRankShape.block_bytes());
  const std::unique_ptr<RankWorker> worker = *connected.get();
  EXPECT_EQ(worker->state().generation, 5U);
  leader.send(RankPing{.number = 12});
  EXPECT_EQ(leader.next<RankPong>().number, 12U);
  write_block(device_, 2, 99);
  const RankCopyDone down = leader.copy(1, CacheLevel::kG1, CacheLevel::kG2, {2, 7});
  const RankCopyDone up = leader.copy(2, CacheLevel::kG2, CacheLevel::kG1, {7, 3});
  EXPECT_THAT(down.states, Each(BlockState::kDone));
  EXPECT_EQ(up.checksums, down.checksums);
  EXPECT_TRUE(holds(device_, 3, 99));
  // What is of another generation is nobody's.
  leader.send(RankPing{.number = 13}, 4);
  leader.send(RankPing{.number = 14}, 5);
  EXPECT_EQ(leader.next<RankPong>().number, 14U);
}

TEST_F(ConnectedRankTest, ALeaderThatDiesAndComesBackIsAnotherOne) {
  std::optional<HandLeader> leader(address_);
  connect_to(*leader);
  worker_->reached(StepMark::begun(1000));
  EXPECT_TRUE(worker_->fence(std::vector<BlockId>{BlockId{0}}, StepMark::begun(1000), in_time()));
  write_block(device_, 2, 99);
  const RankCopyDone down = leader->copy(1, CacheLevel::kG1, CacheLevel::kG3, {2, 7}, StepMark::begun(1000));
  leader.reset();
  leader.emplace(address_);
  come_back(*leader, 1);
  EXPECT_EQ(leader->copy(1, CacheLevel::kG3, CacheLevel::kG2, {7, 0}).checksums, down.checksums);
  leader->ask(2, CacheLevel::kG1, CacheLevel::kG2, {0, 1}, StepMark::begun(1));
  leader->send(RankPing{.number = 1});
  leader->next<RankPong>();  // it is held
  EXPECT_EQ(worker_->state().leader, leader->id());
  ASSERT_TRUE(worker_->follow(leader->id(), in_time()));
  worker_->reached(StepMark::begun(1));
  EXPECT_THAT(leader->next<RankCopyDone>().states, Each(BlockState::kDone));
}

// Over TCP nothing but the id tells two leaders apart: no process is known, and the generations go on where the old
// leader's ended if the first talk with the new one broke.
TEST_F(ConnectedRankTest, ALeaderWhoseFirstTalkBrokeIsStillAnotherOne) {
  std::optional<HandLeader> leader(*RankAddress::parse("tcp:127.0.0.1:0"));
  address_ = leader->address();
  connect_to(*leader);
  worker_->reached(StepMark::begun(1000));
  EXPECT_TRUE(worker_->fence(std::vector<BlockId>{BlockId{0}}, StepMark::begun(1000), in_time()));
  leader.reset();
  leader.emplace(address_);
  leader->accept();
  leader->hang_up();  // it counts as generation 1 with the leader, and the rank never hears of it
  come_back(*leader, 2);
  leader->ask(1, CacheLevel::kG1, CacheLevel::kG2, {0, 1}, StepMark::computed(3));
  worker_->reached(StepMark::begun(1001));  // a step of the old leader that the engine had not heard the end of
  leader->send(RankPing{.number = 1});
  leader->next<RankPong>();  // the save has not run: its step has not come
  ASSERT_TRUE(worker_->follow(leader->id(), in_time()));
  worker_->reached(StepMark::begun(3));
  leader->send(RankPing{.number = 2});
  leader->next<RankPong>();
  write_block(device_, 0, 5);
  worker_->reached(StepMark::computed(3));
  EXPECT_THAT(leader->next<RankCopyDone>().states, Each(BlockState::kDone)) << "the old fence is gone too";
  leader->next<RankSettled>();
  EXPECT_THAT(leader->copy(2, CacheLevel::kG2, CacheLevel::kG1, {1, 4}).states, Each(BlockState::kDone));
  EXPECT_TRUE(holds(device_, 4, 5)) << "what the step computed, not what was there before";
}

TEST_F(ConnectedRankTest, ALostConnectionKeepsMarksAndFences) {
  HandLeader leader(address_);
  connect_to(leader);
  worker_->reached(StepMark::begun(9));
  worker_->reached(StepMark::begun(10));
  EXPECT_TRUE(worker_->fence(std::vector<BlockId>{BlockId{0}}, StepMark::begun(10), in_time()));
  leader.hang_up();
  come_back(leader, 2);
  EXPECT_EQ(worker_->state().generation, 2U);
  EXPECT_THAT(leader.copy(1, CacheLevel::kG1, CacheLevel::kG2, {0, 0}, StepMark::computed(9)).states,
              Each(BlockState::kCancelled));
  EXPECT_THAT(leader.copy(2, CacheLevel::kG1, CacheLevel::kG2, {1, 1}, StepMark::computed(9)).states,
              Each(BlockState::kDone));
}

TEST_F(ConnectedRankTest, ComesBackOnlyWhenItsCopiesAreOver) {
  hangs_ = true;
  HandLeader leader(address_);
  connect_to(leader);
  leader.ask(1, CacheLevel::kG1, CacheLevel::kG2, {0, 0});
  leader.ask(2, CacheLevel::kG1, CacheLevel::kG2, {1, 1}, StepMark::begun(1));
  leader.send(RankPing{.number = 1});
  leader.next<RankPong>();
  worker_->expect(std::vector<BlockId>{BlockId{3}});
  leader.hang_up();
  EXPECT_EQ(worker_->wait_for_layer(0, in_time()).error().code, ErrorCode::kUnavailable);
  EXPECT_FALSE(leader.is_called(milliseconds(100)));
  EXPECT_FALSE(worker_->state().is_connected);
  faults_.load()->release();
  come_back(leader, 2);
  EXPECT_EQ(worker_->state().copies, 0U);
  EXPECT_THAT(leader.copy(1, CacheLevel::kG1, CacheLevel::kG2, {0, 0}).states, Each(BlockState::kDone));
}

TEST_F(ConnectedRankTest, ALeaderThatTalksNonsenseIsGivenUp) {
  HandLeader leader(address_);
  connect_to(leader);
  leader.welcome(2, config_);
  EXPECT_TRUE(leader.is_hung_up());
  leader.hang_up();
  come_back(leader, 2);
  leader.send(RankReady{});
  EXPECT_TRUE(leader.is_hung_up());
  leader.hang_up();
  leader.accept();
  leader.welcome(0, config_);
  EXPECT_TRUE(leader.is_hung_up());
  leader.hang_up();
  come_back(leader, 4);
}

TEST_F(ConnectedRankTest, ASilentLeaderIsGone) {
  HandLeader leader(address_);
  connect_to(leader, milliseconds(1));
  EXPECT_TRUE(leader.is_hung_up());
  EXPECT_THAT(worker_->state().reason, HasSubstr("the leader said nothing for"));
  leader.hang_up();
  come_back(leader, 2);
}

TEST_F(ConnectedRankTest, ALeaderThatDoesNotKnowTheSecretIsNotTrusted) {
  first_connection_ = milliseconds(1000);
  HandLeader leader(address_);
  auto connected = connect();
  leader.accept();
  leader.welcome(1, config_, "guessed");
  EXPECT_TRUE(leader.is_hung_up());
  leader.hang_up();
  EXPECT_THAT(connected.get().error().message, HasSubstr("does not prove that it knows the secret"));
}

TEST_F(ConnectedRankTest, ARefusalIsTold) {
  first_connection_ = milliseconds(1000);
  HandLeader leader(address_);
  auto connected = connect();
  leader.accept();
  leader.send(RankRefusal{.reason = "there are 4 ranks"});
  EXPECT_TRUE(leader.is_hung_up());
  leader.hang_up();
  EXPECT_THAT(connected.get().error().message, HasSubstr("the leader says: there are 4 ranks"));
}

TEST_F(ConnectedRankTest, AConfigurationThatDoesNotFitIsRefused) {
  HandLeader leader(address_);
  auto connected = connect();
  leader.accept();
  ManagerConfig config = config_;
  config.model.heads = 2;
  leader.welcome(1, config);
  EXPECT_THAT(leader.next<RankRefusal>().reason, HasSubstr("2 heads where it is 1"));
  EXPECT_THAT(connected.get().error().message, HasSubstr("2 heads where it is 1"));
}

// With a real leader: ranks of this process that do not know it.
TEST_F(ConnectedRankTest, ALeaderGoesAndAnotherComesInItsPlace) {
  std::vector<LayoutGroups> devices = {one_group(), one_group()};
  std::vector<std::unique_ptr<RankWorker>> workers(2);
  std::vector<Checksum> saved;
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto leader = *RankGroup::make({.ranks = 2, .address = address_, .secret = "s", .transfers = 8});
    leader->open(config_);
    for (std::uint32_t rank = 0; rank < 2 && round == 0; ++rank) {
      write_block(devices[rank], 0, rank);
      Result<std::unique_ptr<RankWorker>> worker =
          RankWorker::connect(address_, {.rank = rank, .ranks = 2, .device = devices[rank], .secret = "s"});
      ASSERT_TRUE(worker.has_value()) << worker.error().to_string();
      workers[rank] = *std::move(worker);
    }
    const Status ready = leader->wait_for_ranks(kPatience);
    ASSERT_TRUE(ready.has_value()) << ready.error().message;
    for (const std::unique_ptr<RankWorker>& worker : workers) {
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

TEST_F(ConnectedRankTest, NobodyListens) {
  first_connection_ = milliseconds(1);
  EXPECT_EQ(RankWorker::connect(address_, options()).error().code, ErrorCode::kUnavailable);
}

// --- the end ---

TEST_F(ConnectedRankTest, AnOrderlyEndFlushesTheFile) {
  HandLeader leader(address_);
  connect_to(leader);
  EXPECT_THAT(leader.copy(1, CacheLevel::kG1, CacheLevel::kG3, {0, 0}).states, Each(BlockState::kDone));
  struct stat facts{};
  ASSERT_EQ(::stat(folder_.in("disk.r1of2").c_str(), &facts), 0);
  const int before = flushes_of(facts.st_ino);
  worker_.reset();
  EXPECT_GT(flushes_of(facts.st_ino), before);
}

TEST_F(ConnectedRankTest, IoThatNeverReturnsDoesNotHoldUpTheEnd) {
  const auto io = std::make_shared<testing::StuckIo>();
  io->hangs = true;
  RankWorker::Options stuck = options();
  stuck.around = [io](ExecutorKind, std::unique_ptr<TransferExecutor> inside) -> std::unique_ptr<TransferExecutor> {
    return std::make_unique<testing::StuckExecutor>(io, std::move(inside));
  };
  ManagerConfig config = config_;
  config.shutdown = milliseconds(10);
  HandLeader leader(address_);
  auto connected = std::async(std::launch::async, [&] { return RankWorker::connect(address_, std::move(stuck)); });
  leader.accept();
  leader.welcome(1, config);
  leader.next<RankReady>();
  std::unique_ptr<RankWorker> worker = *connected.get();
  leader.ask(1, CacheLevel::kG1, CacheLevel::kG2, {0, 0});
  leader.send(RankPing{.number = 1});
  leader.next<RankPong>();
  ASSERT_EQ(io->stuck, 1);
  worker.reset();
  EXPECT_EQ(io->ended, 0) << "its memory stays as long as it may be touched";
  io->promise.set_value();
  // The rank's options, which go last, keep it too: a thread that still ended the rank would outlive the program.
  while (io.use_count() > 1) {
    std::this_thread::yield();
  }
  EXPECT_EQ(io->ended, 1);
}

}  // namespace
}  // namespace cairn
