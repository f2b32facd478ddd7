// RedisStore with real servers, and with servers that fail.
#include "cairn/cluster/redis_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cairn/cluster/redis_server_testing.h"
#include "cairn/cluster/redis_slots.h"
#include "cairn/cluster/store_testing.h"
#include "cairn/memory/memory_testing.h"

namespace cairn::testing {
namespace {

using enum StoreOperation;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A server that accepts connections and sends each of them these bytes for whatever it receives first.
class RudeServer {
 public:
  explicit RudeServer(std::string bytes, bool closes = true) : bytes_(std::move(bytes)), closes_(closes) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    (void)bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    (void)listen(listener_, 16);
    (void)getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~RudeServer() {
    ends_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    for (const int each : kept_) {
      ::close(each);
    }
  }
  [[nodiscard]] RedisAddress address() const { return {.host = "127.0.0.1", .port = port_}; }

 private:
  void serve() {
    while (!ends_) {
      const int peer = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) {
        return;
      }
      char ignored[4096];
      if (!bytes_.empty() && recv(peer, ignored, sizeof(ignored), 0) > 0) {
        (void)!write(peer, bytes_.data(), bytes_.size());
      }
      if (closes_) {
        ::close(peer);
      } else {
        kept_.push_back(peer);
      }
    }
  }

  const std::string bytes_;
  const bool closes_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> ends_{false};
  std::vector<int> kept_;
  std::thread thread_;
};

class RedisStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!RedisServer::is_installed()) {
      GTEST_SKIP() << "redis-server is not installed";
    }
  }
  static std::unique_ptr<RedisStore> open(const RedisServer& server, RedisStore::Options options = {}) {
    options.address = *RedisAddress::parse(server.url());
    return *RedisStore::make(steady_clock(), options);
  }
};

TEST_F(RedisStoreTest, APasswordIsNeeded) {
  std::optional<RedisServer> server = RedisServer::start({"--requirepass", "sesame"});
  ASSERT_TRUE(server.has_value());
  const StoreOutcome none = answer(*open(*server), kContains, {.key = "a"});
  EXPECT_EQ(none.state, StoreState::kRefused);
  EXPECT_THAT(none.error, HasSubstr("give remote.password"));
  const StoreOutcome wrong = answer(*open(*server, {.password = "mustard"}), kContains, {.key = "a"});
  EXPECT_EQ(wrong.state, StoreState::kRefused);
  EXPECT_THAT(wrong.error, HasSubstr("refused the password"));
  EXPECT_THAT(wrong.error, Not(HasSubstr("mustard")));
  EXPECT_EQ(answer(*open(*server, {.password = "sesame"}), kContains, {.key = "a"}).state, StoreState::kAbsent);
  EXPECT_EQ(answer(*open(*server, {.user = "default", .password = "sesame"}), kContains, {.key = "a"}).state,
            StoreState::kAbsent);
}

TEST_F(RedisStoreTest, AServerThatDiesIsUnavailableAndOneThatComesBackIsUsed) {
  std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  const std::unique_ptr<RedisStore> store = open(*server);
  EXPECT_EQ(answer(*store, kPut, {.key = "a", .label = label_of(1)}).state, StoreState::kDone);
  const std::uint16_t port = server->port();
  server->kill();
  const StoreOutcome dead = answer(*store, kGet, {.key = "a"});
  EXPECT_EQ(dead.state, StoreState::kUnavailable);
  EXPECT_THAT(dead.error, HasSubstr(std::to_string(port)));
  const std::optional<RedisServer> another = RedisServer::start({}, port);
  ASSERT_TRUE(another.has_value());
  StoreState state = StoreState::kUnavailable;
  for (int i = 0; i < 100000 && state == StoreState::kUnavailable; ++i) {  // waits between attempts, at most 5 s
    state = answer(*store, kGet, {.key = "a"}).state;
    std::this_thread::yield();
  }
  EXPECT_EQ(state, StoreState::kAbsent);
}

// The body of an item that has expired is the caller's again, although the server sends it later.
TEST_F(RedisStoreTest, AStalledServerIsExpiredAndWritesNoLateBody) {
  std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  const std::unique_ptr<RedisStore> store = open(*server, {.timeout = seconds(30), .connections = 1});
  std::vector<std::byte> body = body_of(1 << 20, 5);
  ASSERT_EQ(answer(*store, kPut, {.key = "a", .label = label_of(1), .body = body}).state, StoreState::kDone);
  server->pause();
  std::vector<std::byte> got(body.size());
  EXPECT_EQ(answer(*store, kGet, {.key = "a", .body = got}, milliseconds(50)).state, StoreState::kExpired);
  server->resume();
  std::vector<std::byte> again(body.size());
  EXPECT_EQ(answer(*store, kGet, {.key = "a", .body = again}).state, StoreState::kDone);
  EXPECT_EQ(again, body);
  EXPECT_EQ(got, std::vector<std::byte>(body.size()));
}

// More than sockets hold: the put is being sent when its deadline passes.
TEST_F(RedisStoreTest, AStalledServerEndsAPutThatIsBeingSent) {
  std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  const std::unique_ptr<RedisStore> store = open(*server, {.timeout = seconds(30), .connections = 1});
  ASSERT_EQ(answer(*store, kContains, {.key = "a"}).state, StoreState::kAbsent);
  server->pause();
  std::vector<std::byte> body = body_of(64 << 20, 5);
  EXPECT_THAT(answer(*store, kPut, {.key = "a", .label = label_of(1), .body = body}, milliseconds(100)).state,
              AnyOf(StoreState::kExpired, StoreState::kUnavailable));
  server->resume();
}

TEST_F(RedisStoreTest, ValuesExpireIfTheyHaveATimeToLive) {
  std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  const std::unique_ptr<RedisStore> store = open(*server, {.time_to_live = milliseconds(1)});
  EXPECT_EQ(answer(*store, kPut, {.key = "a", .label = label_of(1)}).state, StoreState::kDone);
  StoreState state = StoreState::kDone;
  while (state == StoreState::kDone) {
    state = answer(*store, kContains, {.key = "a"}).state;
  }
  EXPECT_EQ(state, StoreState::kAbsent);
}

TEST_F(RedisStoreTest, AFullServerRefusesAndSaysWhatToDo) {
  std::optional<RedisServer> server = RedisServer::start({"--maxmemory", "2mb"});
  ASSERT_TRUE(server.has_value());
  std::vector<std::byte> body = body_of(4 << 20, 1);
  const std::unique_ptr<RedisStore> store = open(*server);
  StoreOutcome outcome;
  for (int i = 0; i < 3; ++i) {
    outcome = answer(*store, kPut, {.key = std::to_string(i), .label = label_of(1), .body = body});
  }
  EXPECT_EQ(outcome.state, StoreState::kRefused);
  EXPECT_THAT(outcome.error, HasSubstr("maxmemory-policy"));
}

TEST_F(RedisStoreTest, DatabasesAreSeparate) {
  std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  EXPECT_EQ(answer(*open(*server), kPut, {.key = "a", .label = label_of(1)}).state, StoreState::kDone);
  RedisAddress third = *RedisAddress::parse(server->url() + "/3");
  const std::unique_ptr<RedisStore> other = *RedisStore::make(steady_clock(), {.address = third});
  EXPECT_EQ(answer(*other, kContains, {.key = "a"}).state, StoreState::kAbsent);
}

TEST_F(RedisStoreTest, TlsVerifiesTheServer) {
  TestFolder folder;
  const std::string key = folder.in("key.pem");
  const std::string certificate = folder.in("cert.pem");
  const std::string make =
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=cairn -addext "
      "subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + certificate + " 2>/dev/null";
  if (std::system(make.c_str()) != 0) {
    GTEST_SKIP() << "there is no openssl command to make a certificate with";
  }
  const std::uint16_t port = free_port();
  std::optional<RedisServer> server =
      RedisServer::start({"--tls-port", std::to_string(port), "--tls-cert-file", certificate, "--tls-key-file", key,
                          "--tls-auth-clients", "no"});
  if (!server) {
    GTEST_SKIP() << "this redis-server was built without TLS";
  }
  const RedisAddress address{.host = "127.0.0.1", .port = port, .has_tls = true};
  const auto store = *RedisStore::make(steady_clock(), {.address = address, .ca_file = certificate});
  std::vector<std::byte> body = body_of(3 << 20, 3);
  ASSERT_EQ(answer(*store, kPut, {.key = "a", .label = label_of(1), .body = body}).state, StoreState::kDone);
  std::vector<std::byte> got(body.size());
  EXPECT_EQ(answer(*store, kGet, {.key = "a", .body = got}).state, StoreState::kDone);
  EXPECT_EQ(got, body);
  const auto strict = *RedisStore::make(steady_clock(), {.address = address});  // the system's authorities
  const StoreOutcome refused = answer(*strict, kContains, {.key = "a"});
  EXPECT_EQ(refused.state, StoreState::kRefused);
  EXPECT_THAT(refused.error, HasSubstr("remote.ca_file"));
  const auto missing = RedisStore::make(steady_clock(), {.address = address, .ca_file = folder.in("none")});
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kInvalidArgument);
}

// Three nodes with a third of the slots each. Nobody told the store that it is a cluster.
TEST_F(RedisStoreTest, AClusterGetsEachKeyAtItsNode) {
  std::vector<RedisServer> nodes;
  for (int i = 0; i < 3; ++i) {
    // Nodes talk to each other at their port and 10,000.
    const auto first = static_cast<std::uint16_t>(20'000 + getpid() % 1000 * 10 + i);
    std::optional<RedisServer> node = RedisServer::start({"--cluster-enabled", "yes"}, free_port(first));
    ASSERT_TRUE(node.has_value());
    nodes.push_back(*std::move(node));
  }
  std::string commands;
  for (int i = 0; i < 3; ++i) {
    const std::string at = "redis-cli -p " + std::to_string(nodes[i].port());
    commands += at + " cluster addslotsrange " + std::to_string(i * 5462) + " " +
                std::to_string(std::min((i + 1) * 5462 - 1, 16383)) + " >/dev/null && ";
    commands += at + " cluster meet 127.0.0.1 " + std::to_string(nodes[0].port()) + " >/dev/null && ";
  }
  if (std::system((commands + "true").c_str()) != 0) {
    GTEST_SKIP() << "there is no redis-cli to make a cluster with";
  }
  const std::unique_ptr<RedisStore> store = open(nodes[0]);
  std::vector<std::byte> body = body_of(2000, 4);
  for (int i = 0; i < 60; ++i) {
    const std::string key = "key" + std::to_string(i);
    StoreOutcome outcome{.state = StoreState::kUnavailable};
    // The nodes have to hear of each other first: CLUSTERDOWN until then.
    for (int attempt = 0; attempt < 200000 && outcome.state == StoreState::kUnavailable; ++attempt) {
      outcome = answer(*store, kPut, {.key = key, .label = label_of(static_cast<unsigned char>(i)), .body = body});
    }
    ASSERT_EQ(outcome.state, StoreState::kDone) << outcome.error;
  }
  for (int i = 0; i < 60; ++i) {
    std::vector<std::byte> got(body.size());
    const StoreOutcome outcome = answer(*store, kGet, {.key = "key" + std::to_string(i), .body = got});
    ASSERT_EQ(outcome.state, StoreState::kDone) << outcome.error;
    EXPECT_EQ(outcome.label, label_of(static_cast<unsigned char>(i)));
    EXPECT_EQ(got, body);
  }
}

TEST(RedisStoreRudeTest, WhatIsNoReplyEndsTheItems) {
  const std::string answers_of_no_server[] = {
      "HTTP/1.1 400 Bad Request\r\n\r\n",
      "$100\r\nshort",
      "$9999999999999\r\n",
      ":12\r\n",
      "$64\r\n",
      "+OK\r\n+OK\r\n",
      "*3\r\n:1\r\n",
      "$-2\r\n",
      std::string(100'000, 'x'),
  };
  for (const std::string& bytes : answers_of_no_server) {
    const RudeServer server(bytes);
    const auto store = *RedisStore::make(steady_clock(), {.address = server.address()});
    std::vector<std::byte> got(36);
    const StoreOutcome outcome = answer(*store, kGet, {.key = "a", .body = got});
    EXPECT_EQ(outcome.state, StoreState::kUnavailable) << bytes.substr(0, 20);
    EXPECT_FALSE(outcome.error.empty());
  }
}

TEST(RedisStoreRudeTest, AServerThatSaysNothingIsExpired) {
  const RudeServer server("", false);
  const auto store = *RedisStore::make(steady_clock(), {.address = server.address(), .timeout = milliseconds(50)});
  const StoreOutcome outcome = answer(*store, kContains, {.key = "a"});
  EXPECT_EQ(outcome.state, StoreState::kUnavailable);
  EXPECT_THAT(outcome.error, HasSubstr("has not answered"));
}

TEST(RedisStoreRudeTest, NobodyThereIsUnavailable) {
  const auto store = *RedisStore::make(steady_clock(), {.address = {.host = "127.0.0.1", .port = free_port()}});
  const StoreOutcome outcome = answer(*store, kContains, {.key = "a"});
  EXPECT_EQ(outcome.state, StoreState::kUnavailable);
  EXPECT_THAT(outcome.error, HasSubstr("Connection refused"));
}

TEST(RedisStoreRudeTest, CloseEndsWhatIsInFlight) {
  const RudeServer server("", false);
  const auto store = *RedisStore::make(steady_clock(), {.address = server.address(), .timeout = seconds(60)});
  std::atomic<int> ended{0};
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(store->submit({.operation = kContains,
                               .items = {{.key = "a"}, {.key = "b"}},
                               .done = [&](std::size_t, StoreOutcome&& outcome) {
                                 EXPECT_EQ(outcome.state, StoreState::kUnavailable);
                                 ++ended;
                               }}));
  }
  store->close();
  EXPECT_EQ(ended, 20);
}

}  // namespace
}  // namespace cairn::testing
