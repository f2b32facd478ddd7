#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/leader/leader.h"
#include "cairn/leader/leader_members.h"
#include "cairn/leader/leader_testing.h"
#include "cairn/wire/rank_proof.h"
#include "cairn/wire/rank_socket.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using testing::all_done;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::rank_plan;
using testing::TransferLog;

// A rank at the end of a socket, under the test's control.
class SocketRank {
 public:
  explicit SocketRank(const RankAddress& address) : SocketRank(connect(address)) {}
  explicit SocketRank(RankSocket socket) : socket_(std::move(socket)) {}

  // std::nullopt if the leader has closed the connection.
  std::optional<RankMessage> next() {
    const TimePoint until = steady_clock().now() + kPatience;
    while (steady_clock().now() < until) {
      Result<std::optional<RankDecoder::Received>> received = socket_.receive();
      if (!received) {
        return std::nullopt;
      }
      if (*received) {
        generation_ = (*received)->generation;
        if (const auto* ping = std::get_if<RankPing>(&(*received)->message)) {
          send(RankPong{ping->number});
          continue;
        }
        return std::move((*received)->message);
      }
      pollfd one{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&one, 1, 1000);
    }
    ADD_FAILURE() << "no message came";
    return std::nullopt;
  }
  template <typename Message>
  Message next_as() {
    std::optional<RankMessage> message = next();
    if (message && std::holds_alternative<Message>(*message)) {
      return std::get<Message>(*std::move(message));
    }
    ADD_FAILURE() << "a message of another kind came";
    return {};
  }
  // If the leader has closed the connection, next() says so.
  void send(const RankMessage& message) { (void)socket_.send(message, generation_); }
  void hello(std::uint32_t rank, std::uint32_t ranks, const std::string& secret = {}) {
    answer(next_as<RankChallenge>(), rank, ranks, secret);
  }
  void answer(const RankChallenge& challenge, std::uint32_t rank, std::uint32_t ranks, const std::string& secret = {}) {
    RankHello message{.claim = {.rank = rank, .ranks = ranks}, .nonce = make_nonce()};
    message.proof = proof_of(message, challenge.nonce, secret);
    send(message);
  }
  std::string refusal() {
    std::string reason = next_as<RankRefusal>().reason;
    EXPECT_FALSE(next().has_value());
    return reason;
  }
  void make_ready(std::uint32_t rank, std::uint32_t ranks, const std::string& secret = {}) {
    hello(rank, ranks, secret);
    next_as<RankWelcome>();
    send(RankReady{.block_bytes = 64});
  }
  void answer(const RankTransferOutcome& answer) {
    send(answer);
    send(RankSettled{answer.id});
  }
  RankSocket& socket() { return socket_; }

 private:
  static RankSocket connect(const RankAddress& address) {
    const TimePoint until = steady_clock().now() + kPatience;
    while (true) {
      Result<RankSocket> socket = RankSocket::connect(address, until);
      if (socket || steady_clock().now() > until) {
        return *std::move(socket);
      }
      std::this_thread::yield();
    }
  }
  RankSocket socket_;
  std::uint32_t generation_ = 0;
};

class LeaderSocketsTest : public ::testing::Test {
 protected:
  LeaderSocketsTest() {
    std::string name = ::testing::TempDir() + "cairn_ranks_XXXXXX";
    directory_ = ::mkdtemp(name.data());
    unix_ = *RankAddress::parse("unix:" + directory_ + "/leader.sock");
  }
  ~LeaderSocketsTest() override {
    executor_.reset();
    leader_.reset();
    std::filesystem::remove_all(directory_);
  }
  void make(Leader::Options options) {
    Result<std::unique_ptr<Leader>> made = Leader::make(std::move(options));
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    leader_ = *std::move(made);
    ManagerConfig config;
    config.shutdown = milliseconds(1);
    leader_->open(config);
    executor_ = leader_->make_executor();
  }
  void submit(const std::string& name, std::uint32_t blocks) {
    ASSERT_TRUE(executor_->submit(log_.transfer(name, down_, blocks)).has_value());
  }

  std::string directory_;
  RankAddress unix_;
  const CopyPlanPtr down_ = rank_plan(MemoryKind::kDevice, MemoryKind::kPinned, 4096);
  TransferLog log_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<TransferExecutor> executor_;
};

TEST_F(LeaderSocketsTest, CopiesGoOverUnixSockets) {
  make({.ranks = 2, .address = unix_});
  EXPECT_EQ(leader_->address(), unix_);
  SocketRank first(unix_);
  SocketRank second(unix_);
  first.make_ready(0, 2);
  second.make_ready(1, 2);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(leader_->status()[0].process, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(leader_->status()[1].block_bytes, 64U);
  submit("a", 4096);
  first.answer(all_done(first.next_as<RankTransfer>()));
  const auto copy = second.next_as<RankTransfer>();
  EXPECT_EQ(copy.pairs.size(), 4096U);
  EXPECT_FALSE(log_.is_done("a"));
  second.answer(all_done(copy));
  EXPECT_TRUE(log_.outcome("a").all_done());
  log_.wait_settled("a");
}

TEST_F(LeaderSocketsTest, TcpNeedsASecretOnBothSides) {
  const RankAddress tcp = *RankAddress::parse("tcp:127.0.0.1:0");
  EXPECT_THAT(Leader::make({.address = tcp}).error().message, HasSubstr("without a secret"));
  make({.ranks = 1, .address = tcp, .secret = "open sesame"});
  const RankAddress address = *leader_->address();
  EXPECT_NE(std::get<RankAddress::Tcp>(address.place).port, 0);
  SocketRank stranger(address);
  stranger.hello(0, 1, "guess");
  EXPECT_EQ(stranger.refusal(), "the rank's proof is wrong; give the rank the leader's secret");
  SocketRank rank(address);
  rank.make_ready(0, 1, "open sesame");
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(leader_->status()[0].process, 0U);
  submit("a", 1);
  rank.answer(all_done(rank.next_as<RankTransfer>()));
  EXPECT_TRUE(log_.outcome("a").all_done());
}

TEST_F(LeaderSocketsTest, AnAddressInUseIsRefused) {
  make({.ranks = 1, .address = unix_});
  EXPECT_EQ(Leader::make({.ranks = 1, .address = unix_}).error().code, ErrorCode::kAlreadyExists);
}

TEST_F(LeaderSocketsTest, ARefusedPeerGetsTheReason) {
  make({.ranks = 2, .address = unix_});
  SocketRank wrong(unix_);
  wrong.hello(2, 2);
  EXPECT_THAT(wrong.refusal(), HasSubstr("there are 2 ranks, 0 to 1, and no rank 2"));
  SocketRank confused(unix_);
  confused.hello(0, 3);
  EXPECT_THAT(confused.refusal(), HasSubstr("it is one of 3 ranks and the leader has 2"));
  SocketRank babbler(unix_);
  babbler.next_as<RankChallenge>();
  const std::string babble(100, 'x');
  ASSERT_EQ(::write(babbler.socket().fd(), babble.data(), babble.size()), 100);
  EXPECT_FALSE(babbler.refusal().empty());
  EXPECT_FALSE(leader_->status()[0].is_there);
}

TEST_F(LeaderSocketsTest, ASilentStrangerIsDropped) {
  make({.ranks = 1, .address = unix_, .heartbeat = milliseconds(10), .silence = milliseconds(50)});
  SocketRank stranger(unix_);
  stranger.next_as<RankChallenge>();
  EXPECT_THAT(stranger.refusal(), HasSubstr("no hello within 50 ms"));
}

// Large messages of strangers cost the leader no memory.
TEST_F(LeaderSocketsTest, StrangersCannotFillTheLeadersMemory) {
  constexpr std::size_t kStrangers = 8;
  constexpr std::size_t kEach = std::size_t{8} << 20;
  make({.ranks = 1, .address = *RankAddress::parse("tcp:127.0.0.1:0"), .secret = "s"});
  std::vector<std::byte> frame;
  encode(RankBroadcast{std::vector<std::byte>(kEach)}, 0, frame);
  const auto in_use = [] {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  std::vector<SocketRank> strangers;
  for (std::size_t i = 0; i < kStrangers; ++i) {
    strangers.emplace_back(*leader_->address());
    strangers.back().next_as<RankChallenge>();
  }
  const std::size_t before = in_use();
  for (SocketRank& stranger : strangers) {
    // Until all of it is taken, or the leader has hung up.
    for (std::size_t sent = 0; sent < frame.size();) {
      const ssize_t count = ::send(stranger.socket().fd(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN) {
        break;
      }
      sent += count > 0 ? static_cast<std::size_t>(count) : 0;
      pollfd writable{.fd = stranger.socket().fd(), .events = POLLOUT, .revents = 0};
      ASSERT_EQ(::poll(&writable, 1, static_cast<int>(kPatience / milliseconds(1))), 1);
    }
  }
  EXPECT_LT(in_use(), before + (std::size_t{1} << 20)) << "of " << kStrangers * kEach << " bytes that were sent";
  SocketRank rank(*leader_->address());
  rank.make_ready(0, 1, "s");
  EXPECT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
}

TEST_F(LeaderSocketsTest, StrangersCannotKeepARankOut) {
  make(
      {.ranks = 1, .address = *RankAddress::parse("tcp:127.0.0.1:0"), .secret = "s", .silence = std::chrono::hours(1)});
  std::vector<SocketRank> strangers;
  for (std::size_t i = 0; i < LeaderMembers::kMaxStrangers + 8; ++i) {
    strangers.emplace_back(*leader_->address());
    strangers.back().next_as<RankChallenge>();  // and sends nothing
  }
  EXPECT_THAT(strangers.front().refusal(), HasSubstr("this is the oldest"));
  SocketRank rank(*leader_->address());
  rank.make_ready(0, 1, "s");
  EXPECT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
}

TEST_F(LeaderSocketsTest, TheSameProcessMayConnectAgainAndSettlesWhatItHad) {
  make({.ranks = 1, .address = unix_});
  std::optional<SocketRank> first(std::in_place, unix_);
  first->make_ready(0, 1);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  submit("a", 2);
  first->next_as<RankTransfer>();
  SocketRank second(unix_);
  second.hello(0, 1);
  EXPECT_EQ(second.next_as<RankWelcome>().generation, 2U);
  EXPECT_FALSE(first->next().has_value());  // hung up
  EXPECT_THAT(log_.states("a"), Each(BlockState::kFailed));
  EXPECT_FALSE(log_.is_settled("a"));
  second.send(RankReady{});
  log_.wait_settled("a");
  EXPECT_EQ(leader_->status()[0].generation, 2U);
}

TEST_F(LeaderSocketsTest, AConnectionThatIsLostFailsCopiesAndProvesNothing) {
  make({.ranks = 1, .address = unix_});
  std::optional<SocketRank> rank(std::in_place, unix_);
  rank->make_ready(0, 1);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  submit("a", 2);
  rank->next_as<RankTransfer>();
  rank.reset();
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 0 is gone: the peer closed the connection"));
  EXPECT_FALSE(log_.is_settled("a"));
  EXPECT_EQ(leader_->status()[0].transfers, 1U);
  rank.emplace(unix_);
  rank->make_ready(0, 1);
  log_.wait_settled("a");
}

TEST_F(LeaderSocketsTest, TheLeaderEndsWithConnectionsAndCopiesInFlight) {
  make({.ranks = 2, .address = unix_});
  SocketRank first(unix_);
  SocketRank second(unix_);
  first.make_ready(0, 2);
  second.make_ready(1, 2);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  submit("a", 2);
  const auto copy = first.next_as<RankTransfer>();
  executor_.reset();
  EXPECT_TRUE(log_.is_settled("a"));
  leader_.reset();
  EXPECT_EQ(first.next_as<RankCancel>().id, copy.id);
  EXPECT_THAT(first.refusal(), HasSubstr("still had transfers in flight"));
}

// A rank that answers everything, and now and then closes its connection and connects again.
void come_and_go(const RankAddress& address, std::uint32_t rank, std::uint32_t ranks, const std::atomic<bool>& stops) {
  std::mt19937 random(rank);
  while (!stops) {
    Result<RankSocket> socket = RankSocket::connect(address, steady_clock().now() + kPatience);
    if (!socket) {
      std::this_thread::yield();
      continue;
    }
    SocketRank talk(*std::move(socket));
    std::uint32_t copies = static_cast<std::uint32_t>(random() % 40);
    while (const std::optional<RankMessage> message = talk.next()) {
      if (const auto* challenge = std::get_if<RankChallenge>(&*message)) {
        talk.answer(*challenge, rank, ranks);
      } else if (std::holds_alternative<RankWelcome>(*message)) {
        talk.send(RankReady{});
      } else if (const auto* copy = std::get_if<RankTransfer>(&*message)) {
        if (copies-- == 0) {
          break;
        }
        talk.answer(testing::all_done(*copy));
      }
    }
  }
}

TEST_F(LeaderSocketsTest, EveryTransferIsReportedAndSettledWhileRanksComeAndGo) {
  constexpr std::uint32_t kRanks = 4;
  constexpr int kThreads = 3;
  constexpr int kEach = 200;
  make({.ranks = kRanks, .address = unix_, .transfers = 8});
  std::atomic<bool> stops = false;
  std::vector<std::thread> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { come_and_go(unix_, rank, kRanks, stops); });
  }
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;
  int failed = 0;
  int settled = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach;) {
        // A transfer that is refused because a rank is missing ends at once, and does not count here.
        (void)leader_->wait_for_ranks(kPatience);
        Transfer transfer{.plan = down_,
                          .blocks = testing::same_blocks(3),
                          .done =
                              [&](TransferOutcome&& outcome) {
                                const std::lock_guard lock(mutex);
                                ++(outcome.all_done() ? done : failed);
                              },
                          .settled =
                              [&] {
                                const std::lock_guard lock(mutex);
                                ++settled;
                                changed.notify_all();
                              }};
        i += executor_->submit(std::move(transfer)).has_value() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return settled == kThreads * kEach; })) << settled;
    EXPECT_EQ(done + failed, kThreads * kEach);
    EXPECT_GT(done, 0);
    EXPECT_GT(failed, 0);
  }
  stops = true;
  executor_.reset();
  leader_.reset();
  for (std::thread& rank : ranks) {
    rank.join();
  }
}

// A separate process as one rank: becomes ready, and answers nothing from then on.
class RankProcess {
 public:
  // Before the test has threads.
  explicit RankProcess(const RankAddress& address) : pid_(::fork()) {
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      SocketRank rank(address);
      rank.make_ready(0, 1);
      while (true) {
        ::pause();
      }
    }
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() { kill(); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  [[nodiscard]] std::uint64_t id() const { return static_cast<std::uint64_t>(pid_); }

 private:
  pid_t pid_;
};

TEST_F(LeaderSocketsTest, AKilledProcessIsGoneAndItsTransfersHaveEnded) {
  RankProcess process(unix_);
  make({.ranks = 1, .address = unix_});
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(leader_->status()[0].process, process.id());
  submit("a", 2);
  process.kill();
  EXPECT_THAT(log_.states("a"), Each(BlockState::kFailed));
  log_.wait_settled("a");
}

TEST_F(LeaderSocketsTest, AProcessThatHangsIsGoneAndSettlesWhenItIsDead) {
  RankProcess process(unix_);
  make({.ranks = 1, .address = unix_, .heartbeat = milliseconds(10), .silence = milliseconds(100)});
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  submit("a", 2);
  EXPECT_THAT(log_.outcome("a").error, HasSubstr("rank 0 is gone: it said nothing for 1"));
  // Another process takes the rank's place; that says nothing about the transfers of the first one.
  SocketRank second(unix_);
  second.make_ready(0, 1);
  ASSERT_TRUE(leader_->wait_for_ranks(kPatience).has_value());
  EXPECT_EQ(leader_->status()[0].process, static_cast<std::uint64_t>(::getpid()));
  EXPECT_FALSE(log_.is_settled("a"));
  process.kill();
  log_.wait_settled("a");
}

}  // namespace
}  // namespace cairn
