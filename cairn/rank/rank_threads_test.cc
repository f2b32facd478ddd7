#include "cairn/rank/rank.h"

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

#include "cairn/rank/rank_testing.h"
#include "cairn/transfer/stuck_executor_testing.h"
#include "cairn/wire/rank_proof.h"
#include "cairn/wire/rank_socket.h"

namespace {

std::mutex flushes_mutex;
std::map<ino_t, int> flushes;

int flushes_of(ino_t file) {
  const std::lock_guard lock(flushes_mutex);
  return flushes[file];
}

}  // namespace

// Replaces the system's: counts flushes by inode.
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
using testing::one_group;
using testing::rank_config;
using testing::write_block;

// --- over sockets ---

// A leader under the test's control.
class HandLeader {
 public:
  explicit HandLeader(const RankAddress& address) : listener_(*RankListener::listen(address)) {}
  [[nodiscard]] const RankAddress& address() const { return listener_.address(); }

  [[nodiscard]] bool is_called(Duration longest) const {
    pollfd called{.fd = listener_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&called, 1, static_cast<int>(longest / milliseconds(1))) == 1;
  }
  // Sends a challenge to a rank that connects.
  void accept() {
    ASSERT_TRUE(is_called(testing::kRankPatience));
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
    ADD_FAILURE() << "a message of kind " << (*received)->message.index() << " was sent";
    return {};
  }
  [[nodiscard]] bool is_hung_up() { return !receive(); }
  [[nodiscard]] const RankHello& hello() const { return hello_; }
  [[nodiscard]] const LeaderId& id() const { return id_; }
  void hang_up() {
    socket_.reset();
    generation_ = 0;
  }
  RankTransferOutcome copy(std::uint64_t id, CacheLevel from, CacheLevel to, BlockPair pair, StepMark not_before = {}) {
    ask(id, from, to, pair, not_before);
    RankTransferOutcome done = next<RankTransferOutcome>();
    EXPECT_EQ(next<RankSettled>().id, TransferId{id});
    return done;
  }
  void ask(std::uint64_t id, CacheLevel from, CacheLevel to, BlockPair pair, StepMark not_before = {}) {
    send(RankTransfer{.id = TransferId{id},
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
      if (::poll(&readable, 1, static_cast<int>(testing::kRankPatience / milliseconds(1))) != 1) {
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
  Rank::Options options() {
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
  std::future<Result<std::unique_ptr<Rank>>> connect() {
    return std::async(std::launch::async, [this] { return Rank::connect(address_, options()); });
  }
  void connect_to(HandLeader& leader, Duration heartbeat = std::chrono::seconds(60)) {
    auto connected = connect();
    leader.accept();
    leader.welcome(1, config_, "s", heartbeat);
    leader.next<RankReady>();
    Result<std::unique_ptr<Rank>> worker = connected.get();
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
  std::unique_ptr<Rank> worker_;
};

TEST_F(ConnectedRankTest, TalksAndCopies) {
  auto connected = connect();  // before there is a leader
  HandLeader leader(address_);
  leader.accept();
  EXPECT_EQ(leader.hello().claim.rank, 1U);
  EXPECT_EQ(leader.hello().claim.ranks, RankGrid(2));
  leader.welcome(5, config_);
  EXPECT_EQ(leader.next<RankReady>().block_bytes, testing::kRankShape.block_bytes());
  const std::unique_ptr<Rank> worker = *connected.get();
  EXPECT_EQ(worker->state().generation, 5U);
  leader.send(RankPing{.number = 12});
  EXPECT_EQ(leader.next<RankPong>().number, 12U);
  write_block(device_, 2, 99);
  const RankTransferOutcome down = leader.copy(1, CacheLevel::kG1, CacheLevel::kG2, {2, 7});
  const RankTransferOutcome up = leader.copy(2, CacheLevel::kG2, CacheLevel::kG1, {7, 3});
  EXPECT_THAT(down.states, Each(BlockState::kDone));
  EXPECT_EQ(up.sums, down.sums);
  EXPECT_TRUE(holds(device_, 3, 99));
  // Messages of another generation are ignored.
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
  const RankTransferOutcome down = leader->copy(1, CacheLevel::kG1, CacheLevel::kG3, {2, 7}, StepMark::begun(1000));
  leader.reset();
  leader.emplace(address_);
  come_back(*leader, 1);
  EXPECT_EQ(leader->copy(1, CacheLevel::kG3, CacheLevel::kG2, {7, 0}).sums, down.sums);
  leader->ask(2, CacheLevel::kG1, CacheLevel::kG2, {0, 1}, StepMark::begun(1));
  leader->send(RankPing{.number = 1});
  leader->next<RankPong>();  // the copy waits
  EXPECT_EQ(worker_->state().leader, leader->id());
  ASSERT_TRUE(worker_->follow(leader->id(), in_time()));
  worker_->reached(StepMark::begun(1));
  EXPECT_THAT(leader->next<RankTransferOutcome>().states, Each(BlockState::kDone));
}

// Over TCP only the id distinguishes two leaders: the process is unknown, and the generations continue the old leader's
// if the first connection to the new one broke.
TEST_F(ConnectedRankTest, ALeaderWhoseFirstTalkBrokeIsStillAnotherOne) {
  std::optional<HandLeader> leader(*RankAddress::parse("tcp:127.0.0.1:0"));
  address_ = leader->address();
  connect_to(*leader);
  worker_->reached(StepMark::begun(1000));
  EXPECT_TRUE(worker_->fence(std::vector<BlockId>{BlockId{0}}, StepMark::begun(1000), in_time()));
  leader.reset();
  leader.emplace(address_);
  leader->accept();
  leader->hang_up();  // generation 1 for the leader, but the rank never gets to know it
  come_back(*leader, 2);
  leader->ask(1, CacheLevel::kG1, CacheLevel::kG2, {0, 1}, StepMark::computed(3));
  worker_->reached(StepMark::begun(1001));  // a step of the old leader that the engine still runs
  leader->send(RankPing{.number = 1});
  leader->next<RankPong>();  // the save has not run: its step has not come
  ASSERT_TRUE(worker_->follow(leader->id(), in_time()));
  worker_->reached(StepMark::begun(3));
  leader->send(RankPing{.number = 2});
  leader->next<RankPong>();
  write_block(device_, 0, 5);
  worker_->reached(StepMark::computed(3));
  EXPECT_THAT(leader->next<RankTransferOutcome>().states, Each(BlockState::kDone)) << "the old fence is gone too";
  leader->next<RankSettled>();
  EXPECT_THAT(leader->copy(2, CacheLevel::kG2, CacheLevel::kG1, {1, 4}).states, Each(BlockState::kDone));
  EXPECT_TRUE(holds(device_, 4, 5)) << "the bytes that the step computed, not those from before";
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

TEST_F(ConnectedRankTest, ComesBackOnlyWhenItsCopiesHaveEnded) {
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
  EXPECT_EQ(worker_->state().transfers, 0U);
  EXPECT_THAT(leader.copy(1, CacheLevel::kG1, CacheLevel::kG2, {0, 0}).states, Each(BlockState::kDone));
}

TEST_F(ConnectedRankTest, ALeaderThatSendsInvalidMessagesIsDisconnected) {
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

TEST_F(ConnectedRankTest, ARefusalIsReported) {
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

// The leader has accepted the rank, and has it wait for another one for longer than the limit.
TEST_F(ConnectedRankTest, ALeaderThatSendsPingsBeforeTheWelcomeIsWaitedFor) {
  first_connection_ = milliseconds(300);
  HandLeader leader(address_);
  auto connected = connect();
  leader.accept();
  for (const TimePoint until = in_time(2 * first_connection_); steady_clock().now() < until;) {
    leader.send(RankPing{.number = 1});
    ASSERT_EQ(connected.wait_for(milliseconds(10)), std::future_status::timeout);
  }
  leader.welcome(1, config_);
  leader.next<RankReady>();
  EXPECT_TRUE(connected.get().has_value());
}

TEST_F(ConnectedRankTest, ConnectingWithoutALeaderFails) {
  first_connection_ = milliseconds(1);
  EXPECT_EQ(Rank::connect(address_, options()).error().code, ErrorCode::kUnavailable);
}

// --- the end ---

TEST_F(ConnectedRankTest, AnOrderlyEndFlushesTheFile) {
  HandLeader leader(address_);
  connect_to(leader);
  EXPECT_THAT(leader.copy(1, CacheLevel::kG1, CacheLevel::kG3, {0, 0}).states, Each(BlockState::kDone));
  struct stat facts{};
  ASSERT_EQ(::stat(folder_.in("disk.l0-2.h2-3").c_str(), &facts), 0);
  const int before = flushes_of(facts.st_ino);
  worker_.reset();
  EXPECT_GT(flushes_of(facts.st_ino), before);
}

TEST_F(ConnectedRankTest, IoThatNeverReturnsDoesNotHoldUpTheEnd) {
  const auto io = std::make_shared<testing::StuckIo>();
  io->hangs = true;
  Rank::Options stuck = options();
  stuck.around = [io](ExecutorKind, std::unique_ptr<TransferExecutor> inside) -> std::unique_ptr<TransferExecutor> {
    return std::make_unique<testing::StuckExecutor>(io, std::move(inside));
  };
  ManagerConfig config = config_;
  config.shutdown = milliseconds(10);
  HandLeader leader(address_);
  auto connected = std::async(std::launch::async, [&] { return Rank::connect(address_, std::move(stuck)); });
  leader.accept();
  leader.welcome(1, config);
  leader.next<RankReady>();
  std::unique_ptr<Rank> worker = *connected.get();
  leader.ask(1, CacheLevel::kG1, CacheLevel::kG2, {0, 0});
  leader.send(RankPing{.number = 1});
  leader.next<RankPong>();
  ASSERT_EQ(io->stuck, 1);
  worker.reset();
  EXPECT_EQ(io->ended, 0) << "its memory stays as long as I/O may touch it";
  io->promise.set_value();
  // The rank's options, which are destroyed last, keep it too: otherwise a thread that still destroys the rank would
  // outlive the program.
  while (io.use_count() > 1) {
    std::this_thread::yield();
  }
  EXPECT_EQ(io->ended, 1);
}

}  // namespace
}  // namespace cairn
