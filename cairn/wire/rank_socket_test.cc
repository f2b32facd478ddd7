#include "cairn/wire/rank_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "cairn/wire/rank_message_testing.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using Received = RankDecoder::Received;

constexpr int kPatience = 20'000;  // milliseconds

TimePoint soon() { return steady_clock().now() + std::chrono::milliseconds(kPatience); }

bool becomes_ready(int fd, short events = POLLIN) {
  pollfd one{.fd = fd, .events = events, .revents = 0};
  return ::poll(&one, 1, kPatience) == 1;
}

// Waits for one message; std::nullopt on an error, which is kept.
std::optional<Received> wait_for(RankSocket& socket, Error* error = nullptr) {
  for (;;) {
    Result<std::optional<Received>> received = socket.receive();
    if (!received) {
      if (error != nullptr) *error = received.error();
      return std::nullopt;
    }
    if (received->has_value()) return std::move(*received);
    if (!becomes_ready(socket.fd())) return std::nullopt;
  }
}

// The same, while the other end still has bytes to send.
std::optional<Received> wait_for_either(RankSocket& socket, RankSocket& sender) {
  for (;;) {
    Result<std::optional<Received>> received = socket.receive();
    if (!received) return std::nullopt;
    if (received->has_value()) return std::move(*received);
    if (sender.wants_write()) {
      if (!sender.flush()) return std::nullopt;
    } else if (!becomes_ready(socket.fd())) {
      return std::nullopt;
    }
  }
}

RankSocket accept_one(RankListener& listener) {
  EXPECT_TRUE(becomes_ready(listener.fd()));
  return std::move(**listener.accept());
}

class RankSocketTest : public ::testing::Test {
 protected:
  RankSocketTest() {
    std::string name = ::testing::TempDir() + "rank_socket_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    unix_ = RankAddress{RankAddress::Unix{folder_ + "/s"}};
  }
  ~RankSocketTest() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/s"; }

  std::string folder_;
  RankAddress unix_;
  RankAddress tcp_{RankAddress::Tcp{"127.0.0.1", 0}};
};

TEST_F(RankSocketTest, BothSidesTalkInOrder) {
  for (const RankAddress& address : {unix_, tcp_}) {
    Result<RankListener> listener = RankListener::listen(address);
    ASSERT_TRUE(listener.has_value()) << listener.error().message;
    EXPECT_FALSE(listener->accept()->has_value()) << "nobody has connected yet";
    Result<RankSocket> rank = RankSocket::connect(listener->address(), soon());
    ASSERT_TRUE(rank.has_value()) << rank.error().message;
    RankSocket leader = accept_one(*listener);
    EXPECT_FALSE(rank->receive()->has_value()) << "nothing was sent yet";

    RankMessageMaker maker(11);
    std::vector<RankMessage> said;
    for (std::uint32_t i = 0; i < 50; ++i) {
      said.push_back(maker.any());
      ASSERT_TRUE(leader.send(said.back(), i).has_value());
      ASSERT_TRUE(rank->send(said.back(), 1000 + i).has_value());
    }
    for (std::uint32_t i = 0; i < 50; ++i) {
      const std::optional<Received> down = wait_for(*rank);
      const std::optional<Received> up = wait_for(leader);
      ASSERT_TRUE(down && up);
      EXPECT_EQ(down->message, said[i]);
      EXPECT_EQ(down->generation, i);
      EXPECT_EQ(up->message, said[i]);
      EXPECT_EQ(up->generation, 1000 + i);
    }
  }
}

TEST_F(RankSocketTest, TheChosenPortIsReported) {
  const Result<RankListener> one = RankListener::listen(tcp_);
  const Result<RankListener> two = RankListener::listen(tcp_);
  const auto port = [](const RankListener& listener) {
    return std::get<RankAddress::Tcp>(listener.address().place).port;
  };
  EXPECT_NE(port(*one), 0);
  EXPECT_NE(port(*one), port(*two));
  const Result<RankListener> taken = RankListener::listen(one->address());
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, ErrorCode::kAlreadyExists);
}

TEST_F(RankSocketTest, LargeMessagesGoThroughSmallBuffers) {
  for (const RankAddress& address : {unix_, tcp_}) {
    RankListener listener = *RankListener::listen(address);
    RankSocket rank = *RankSocket::connect(listener.address(), soon());
    RankSocket leader = accept_one(listener);
    const int small = 4096;
    ::setsockopt(rank.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));

    RankBroadcast large{std::vector<std::byte>(1'000'000)};
    for (std::size_t i = 0; i < large.bytes.size(); ++i) large.bytes[i] = static_cast<std::byte>(i * 31 >> 3);
    ASSERT_TRUE(rank.send(large, 1).has_value());
    ASSERT_TRUE(rank.send(RankPing{5}, 2).has_value());
    EXPECT_TRUE(rank.wants_write());
    std::vector<Received> got;
    while (got.size() < 2) {
      ASSERT_TRUE(rank.flush().has_value());
      Result<std::optional<Received>> received = leader.receive();
      ASSERT_TRUE(received.has_value());
      if (received->has_value()) {
        got.push_back(std::move(**received));
        continue;
      }
      pollfd both[] = {{.fd = leader.fd(), .events = POLLIN, .revents = 0},
                       {.fd = rank.fd(), .events = POLLOUT, .revents = 0}};
      ASSERT_GT(::poll(both, rank.wants_write() ? 2 : 1, kPatience), 0);
    }
    EXPECT_EQ(got[0].message, RankMessage(large));
    EXPECT_EQ(got[1].message, RankMessage(RankPing{5}));
    EXPECT_FALSE(rank.wants_write());
  }
}

TEST_F(RankSocketTest, WhatPilesUpHasABound) {
  RankListener listener = *RankListener::listen(unix_);
  RankSocket rank = *RankSocket::connect(unix_, soon());
  const RankBroadcast large{std::vector<std::byte>(RankSocket::kMaxQueued / 2)};
  ASSERT_TRUE(rank.send(large, 1).has_value());
  ASSERT_TRUE(rank.send(large, 1).has_value());
  ASSERT_TRUE(rank.send(large, 1).has_value()) << "some of the earlier messages were sent";
  const Status status = rank.send(RankPing{1}, 1);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
}

TEST_F(RankSocketTest, WhatWasSaidBeforeClosingArrives) {
  for (const RankAddress& address : {unix_, tcp_}) {
    RankListener listener = *RankListener::listen(address);
    std::optional<RankSocket> rank = std::move(*RankSocket::connect(listener.address(), soon()));
    RankSocket leader = accept_one(listener);
    ASSERT_TRUE(rank->send(RankRefusal{"no memory"}, 1).has_value());
    rank.reset();
    EXPECT_EQ(wait_for(leader)->message, RankMessage(RankRefusal{"no memory"}));
    Error error;
    EXPECT_FALSE(wait_for(leader, &error).has_value());
    EXPECT_EQ(error.code, ErrorCode::kIo);
    EXPECT_EQ(error.message, "the peer closed the connection");
    // No SIGPIPE: the process still runs. TCP fails only after the answer to the first message.
    Status status;
    for (int i = 0; status.has_value() && i < 100; ++i) {
      status = leader.send(RankPing{1}, 1);
      if (status.has_value()) becomes_ready(leader.fd(), POLLIN | POLLOUT);
    }
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().message, "the peer closed the connection");
  }
}

TEST_F(RankSocketTest, GarbageEndsTheTalk) {
  RankListener listener = *RankListener::listen(unix_);
  RankSocket rank = *RankSocket::connect(unix_, soon());
  RankSocket leader = accept_one(listener);
  ASSERT_EQ(::send(rank.fd(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
  Error error;
  EXPECT_FALSE(wait_for(leader, &error).has_value());
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
}

// At most one small frame of an unproven peer is buffered, whatever it sends.
TEST_F(RankSocketTest, WhatIsBufferedOfALimitedPeerIsBounded) {
  RankListener listener = *RankListener::listen(tcp_);
  RankSocket rank = *RankSocket::connect(listener.address(), soon());
  RankSocket leader = accept_one(listener);
  leader.set_max_payload(kMaxHelloPayload);
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < 100; ++i) encode(RankPing{i}, 1, bytes);
  encode(RankBroadcast{std::vector<std::byte>(std::size_t{4} << 20)}, 1, bytes);
  std::size_t sent = 0;
  std::uint64_t received = 0;
  for (bool is_refused = false; !is_refused;) {
    const ssize_t count = ::send(rank.fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count > 0) sent += static_cast<std::size_t>(count);
    ASSERT_TRUE(becomes_ready(leader.fd(), POLLIN));
    for (;;) {
      const auto next = leader.receive();
      EXPECT_LE(leader.buffered(), 24 + kMaxHelloPayload);
      is_refused = !next;
      if (!next || !*next) break;
      EXPECT_EQ((*next)->message, RankMessage(RankPing{received++}));
    }
  }
  EXPECT_EQ(received, 100U);
}

TEST_F(RankSocketTest, APeerHalfWayThroughAMessageIsClosedToo) {
  RankListener listener = *RankListener::listen(unix_);
  std::optional<RankSocket> rank = std::move(*RankSocket::connect(unix_, soon()));
  RankSocket leader = accept_one(listener);
  std::vector<std::byte> frame;
  encode(RankPing{1}, 1, frame);
  ASSERT_GT(::send(rank->fd(), frame.data(), frame.size() - 1, MSG_NOSIGNAL), 0);
  EXPECT_FALSE(leader.receive()->has_value());
  rank.reset();
  Error error;
  EXPECT_FALSE(wait_for(leader, &error).has_value());
  EXPECT_EQ(error.message, "the peer closed the connection");
}

TEST_F(RankSocketTest, UnixSocketsReportTheirPeer) {
  RankListener listener = *RankListener::listen(unix_);
  RankSocket rank = *RankSocket::connect(unix_, soon());
  RankSocket leader = accept_one(listener);
  for (const RankSocket* socket : {&rank, &leader}) {
    ASSERT_TRUE(socket->peer().has_value());
    EXPECT_EQ(socket->peer()->user, ::getuid());
    EXPECT_EQ(socket->peer()->process, static_cast<std::uint64_t>(::getpid()));
  }
  RankListener other = *RankListener::listen(tcp_);
  const RankSocket by_tcp = *RankSocket::connect(other.address(), soon());
  EXPECT_FALSE(by_tcp.peer().has_value());
  EXPECT_EQ(by_tcp.process_fd(), -1);
}

TEST_F(RankSocketTest, TheDeathOfThePeerIsProven) {
  RankListener listener = *RankListener::listen(unix_);
  const pid_t child = ::fork();
  if (child == 0) {
    Result<RankSocket> rank = RankSocket::connect(unix_, soon());
    if (!rank || !rank->send(RankReady{1}, 1)) ::_exit(1);
    for (;;) ::pause();
  }
  ASSERT_GT(child, 0);
  RankSocket leader = accept_one(listener);
  EXPECT_TRUE(wait_for(leader).has_value());
  EXPECT_EQ(leader.peer()->process, static_cast<std::uint64_t>(child));
  if (leader.process_fd() < 0) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    GTEST_SKIP() << "this system has no descriptors of processes";
  }
  pollfd alive{.fd = leader.process_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&alive, 1, 0), 0) << "it lives";

  ASSERT_EQ(::kill(child, SIGKILL), 0);
  Error error;
  EXPECT_FALSE(wait_for(leader, &error).has_value());
  EXPECT_EQ(error.message, "the peer closed the connection");
  const OwnedFd process = leader.take_process();
  EXPECT_EQ(leader.process_fd(), -1);
  EXPECT_TRUE(becomes_ready(process.get()));
  ::waitpid(child, nullptr, 0);
}

TEST_F(RankSocketTest, ConnectingWithoutAListenerIsUnavailable) {
  const Result<RankSocket> by_path = RankSocket::connect(unix_, soon());
  ASSERT_FALSE(by_path.has_value());
  EXPECT_EQ(by_path.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(by_path.error().message, HasSubstr(unix_.to_string()));
  const RankAddress closed = RankListener::listen(tcp_)->address();
  const Result<RankSocket> by_port = RankSocket::connect(closed, soon());
  ASSERT_FALSE(by_port.has_value());
  EXPECT_EQ(by_port.error().code, ErrorCode::kUnavailable);
}

TEST_F(RankSocketTest, ADeadlineThatHasPassedIsReported) {
  const Result<RankListener> listener = RankListener::listen(tcp_);
  const Result<RankSocket> late = RankSocket::connect(listener->address(), steady_clock().now());
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::kExpired);
}

TEST_F(RankSocketTest, OnlyThisUserOpensTheFileAndItGoesWithTheListener) {
  {
    const Result<RankListener> listener = RankListener::listen(unix_);
    struct stat facts{};
    ASSERT_EQ(::lstat(path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(RankSocketTest, AFileThatIsLeftOverIsTakenOver) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path().copy(name.sun_path, sizeof(name.sun_path) - 1);
  {
    const OwnedFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    ASSERT_EQ(::listen(dead.get(), 1), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(path()));
  Result<RankListener> listener = RankListener::listen(unix_);
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  EXPECT_TRUE(RankSocket::connect(unix_, soon()).has_value());
}

TEST_F(RankSocketTest, AFileThatIsInUseIsLeftAlone) {
  RankListener first = *RankListener::listen(unix_);
  const Result<RankListener> second = RankListener::listen(unix_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(RankSocket::connect(unix_, soon()).has_value()) << "the first still listens";
}

TEST_F(RankSocketTest, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(path()) << "precious";
  EXPECT_EQ(RankListener::listen(unix_).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(path()), 8U);
}

TEST_F(RankSocketTest, AnotherFileInItsPlaceStays) {
  {
    const Result<RankListener> listener = RankListener::listen(unix_);
    std::filesystem::remove(path());
    std::ofstream(path()) << "another's";
  }
  EXPECT_TRUE(std::filesystem::exists(path()));
}

TEST_F(RankSocketTest, AListenerThatMovedKeepsItsFile) {
  RankListener first = *RankListener::listen(unix_);
  RankListener second = std::move(first);
  EXPECT_TRUE(RankSocket::connect(unix_, soon()).has_value());
  const RankAddress other{RankAddress::Unix{folder_ + "/other"}};
  second = *RankListener::listen(other);
  EXPECT_FALSE(std::filesystem::exists(path())) << "it listens there no longer";
  EXPECT_TRUE(RankSocket::connect(other, soon()).has_value());
}

TEST_F(RankSocketTest, DescriptorsNeitherBlockNorLeak) {
  RankListener listener = *RankListener::listen(tcp_);
  const RankSocket rank = *RankSocket::connect(listener.address(), soon());
  const RankSocket leader = accept_one(listener);
  for (const int fd : {listener.fd(), rank.fd(), leader.fd()}) {
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(::fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
  for (const int fd : {rank.fd(), leader.fd()}) {
    int on = 0;
    socklen_t size = sizeof(on);
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
    EXPECT_NE(on, 0) << "small messages go at once";
  }
}

// Between other messages, so that bytes before and after it are in one queue.
TEST_F(RankSocketTest, HostMemoryComesWithTheWelcome) {
  RankListener listener = *RankListener::listen(unix_);
  RankSocket rank = *RankSocket::connect(unix_, soon());
  RankSocket leader = accept_one(listener);
  std::vector<SharedMemoryPtr> memory = {*SharedMemory::make(4096), *SharedMemory::make(8192)};
  ASSERT_TRUE(leader.send(RankPing{1}, 0));
  for (const SharedMemoryPtr& each : memory) {
    ASSERT_TRUE(
        leader.send(RankWelcome{.config = std::string(200'000, 'x'), .has_host_memory = true, .host_memory = each}, 0));
    ASSERT_TRUE(leader.send(RankPing{2}, 0));
  }
  std::vector<SharedMemoryPtr> received;
  while (received.size() < 2) {
    ASSERT_TRUE(leader.flush());
    const std::optional<Received> next = wait_for_either(rank, leader);
    ASSERT_TRUE(next.has_value());
    if (const auto* welcome = std::get_if<RankWelcome>(&next->message)) {
      received.push_back(welcome->host_memory);
    }
  }
  EXPECT_TRUE(received[0]->is_same(*memory[0]));
  EXPECT_TRUE(received[1]->is_same(*memory[1]));
  EXPECT_EQ(received[1]->size(), 8192U);
}

TEST_F(RankSocketTest, AWelcomeThatNamesMemoryAndBringsNoneIsCorrupt) {
  RankListener listener = *RankListener::listen(unix_);
  RankSocket rank = *RankSocket::connect(unix_, soon());
  RankSocket leader = accept_one(listener);
  std::vector<std::byte> bytes;
  encode(RankWelcome{.has_host_memory = true}, 0, bytes);
  ASSERT_EQ(::send(leader.fd(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  Error error;
  EXPECT_FALSE(wait_for(rank, &error).has_value());
  EXPECT_EQ(error.code, ErrorCode::kCorrupt);
}

TEST_F(RankSocketTest, MemoryIsNotSharedOverTcp) {
  RankListener listener = *RankListener::listen(tcp_);
  RankSocket rank = *RankSocket::connect(listener.address(), soon());
  RankSocket leader = accept_one(listener);
  EXPECT_FALSE(leader.send(RankWelcome{.has_host_memory = true, .host_memory = *SharedMemory::make(4096)}, 0));
}

}  // namespace
}  // namespace cairn
