// The whole stream: pools and their log, an engine that publishes, and a router that follows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "cairn/events/event_publisher.h"
#include "cairn/events/event_receiver.h"
#include "cairn/events/event_stream.h"
#include "cairn/events/events_testing.h"
#include "cairn/events/router_testing.h"

namespace cairn {
namespace {

using events_testing::block_at;
using events_testing::hash_at;
using events_testing::PlainPool;
using events_testing::TestRouter;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kAnyPort = "tcp://127.0.0.1:*";
constexpr int kMostSteps = 4000;
constexpr CacheLevel kG2 = CacheLevel::kG2;

class EventStreamTest : public ::testing::Test {
 protected:
  void start(std::uint32_t log_blocks, const EventStreamOptions& options) {
    log_ = *EventLog::create({.blocks = log_blocks, .source = {.worker_id = 7, .dp_rank = 0}});
    pool_.emplace(kG2, 64, *log_);
    EventStreamOptions given = options;
    given.publish = kAnyPort;
    given.replay = kAnyPort;
    given.block_size = 1;
    stream_ = *EventStream::start(given, *log_, {&*pool_});
    follower_ = *EventReceiver::create({.endpoint = stream_->status().published.endpoint,
                                        .replay_endpoint = stream_->status().published.replay_endpoint,
                                        .replay_limit = std::chrono::seconds(60),
                                        .check = std::chrono::milliseconds(50)});
  }
  void TearDown() override { stream_.reset(); }

  // Follows until the router knows exactly these blocks.
  void expect_blocks(const std::set<std::uint64_t>& expected, const std::function<void()>& meanwhile = [] {}) {
    for (int step = 0; step < kMostSteps && router_.hashes() != expected; ++step) {
      meanwhile();
      std::vector<ReceivedEvents> received;
      follower_->receive(received);
      for (const ReceivedEvents& one : received) {
        ASSERT_TRUE(one.kind == ReceivedEvents::Kind::kBatch || one.kind == ReceivedEvents::Kind::kSnapshot);
        EXPECT_EQ(one.batch.dp_rank, 0U);
        router_.apply(one.batch.events);
      }
      if (received.empty()) {
        ASSERT_TRUE(follower_->wait(std::chrono::milliseconds(5)));
      }
    }
    EXPECT_EQ(router_.hashes(), expected);
  }
  static std::uint64_t name(std::uint32_t sequence, std::uint32_t position) {
    return value_of(hash_at(sequence, position));
  }

  std::unique_ptr<EventLog> log_;
  std::optional<PlainPool> pool_;
  std::unique_ptr<EventReceiver> follower_;
  std::unique_ptr<EventStream> stream_;
  TestRouter router_{false};
};

TEST_F(EventStreamTest, ARouterKnowsWhatThePoolsHave) {
  start(1024, {.mode = EventMode::kPassthrough});
  pool_->put(0, block_at(1, 0));
  pool_->put(1, block_at(1, 1));
  expect_blocks({name(1, 0), name(1, 1)});
  pool_->remove(1);
  pool_->put(2, block_at(2, 0));
  expect_blocks({name(1, 0), name(2, 0)});
  pool_->clear();
  expect_blocks({});
  EXPECT_EQ(stream_->status().blocks.blocks, 0U);
}

TEST_F(EventStreamTest, AStreamThatLagsSendsTheDifference) {
  start(2, {.mode = EventMode::kPassthrough});
  std::set<std::uint64_t> expected;
  for (std::uint32_t sequence = 0; sequence < 500; ++sequence) {
    pool_->put(sequence % 64, block_at(sequence, 0));
  }
  for (std::uint32_t sequence = 500 - 64; sequence < 500; ++sequence) {
    expected.insert(name(sequence, 0));
  }
  expect_blocks(expected);
}

TEST_F(EventStreamTest, ASuspendedTierDoesNotCount) {
  start(1024, {.mode = EventMode::kPassthrough});
  pool_->put(0, block_at(1, 0));
  expect_blocks({name(1, 0)});
  log_->suspend(kG2);
  expect_blocks({});
  pool_->put(1, block_at(2, 0));
  log_->resume(kG2);
  expect_blocks({name(1, 0), name(2, 0)});
}

// The engine's hashes are those that the log has as hashes of the tokens.
TEST_F(EventStreamTest, EngineAndTiersAreMerged) {
  auto engine = *EventPublisher::create(
      {.endpoint = kAnyPort, .replay_endpoint = kAnyPort, .first_sequence = 0, .buffer = 10'000});
  start(1024, {.engine = engine->status().endpoint,
               .engine_replay = engine->status().replay_endpoint,
               .names = EventNames::kEngineHashes});
  const auto hash_of = [](std::uint32_t position) { return value_of(block_at(1, position).tokens_hash); };
  const auto answer = [&] { engine->answer_replays([] { return std::vector<EventPublisher::RankSnapshot>(); }, 1); };
  const auto publish = [&](KvEvent event) { engine->publish(0, {&event, 1}, 1); };
  pool_->put(0, block_at(1, 0));
  pool_->put(1, block_at(1, 1));
  publish({.data = KvStored{.hashes = {hash_of(0), hash_of(1), hash_of(2)}, .token_ids = {1, 2, 3}, .block_size = 1}});
  expect_blocks({hash_of(0), hash_of(1), hash_of(2)}, answer);
  publish({.data = KvRemoved{{hash_of(2), hash_of(1), hash_of(0)}}});
  publish({.data = KvStored{.hashes = {5}, .token_ids = {9}, .block_size = 1}});
  expect_blocks({hash_of(0), hash_of(1), 5}, answer);
  pool_->remove(1);
  expect_blocks({hash_of(0), 5}, answer);
  EXPECT_EQ(stream_->status().blocks.waiting, 0U);

  // The engine starts again, empty, on the same ports.
  const EventPublisherStatus before = engine->status();
  engine.reset();
  engine = *EventPublisher::create(
      {.endpoint = before.endpoint, .replay_endpoint = before.replay_endpoint, .first_sequence = 0});
  std::uint64_t hash = 100;
  for (int step = 0; step < kMostSteps && stream_->status().engine.restarts == 0; ++step) {
    publish({.data = KvStored{.hashes = {++hash}, .token_ids = {9}, .block_size = 1}});
    answer();
    ASSERT_TRUE(follower_->wait(std::chrono::milliseconds(5)));
  }
  EXPECT_GT(stream_->status().engine.restarts, 0U);
  publish({.data = KvCleared{}});
  expect_blocks({hash_of(0)}, answer);
}

TEST_F(EventStreamTest, EndpointsInUseAreErrors) {
  start(16, {.mode = EventMode::kPassthrough});
  const auto second = EventStream::start(
      {.publish = stream_->status().published.endpoint, .mode = EventMode::kPassthrough}, *log_, {&*pool_});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace cairn
