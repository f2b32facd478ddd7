// The test suite for every BlockStore.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/cluster/memory_store_testing.h"
#include "cairn/cluster/redis_server_testing.h"
#include "cairn/cluster/redis_store.h"
#include "cairn/cluster/store_testing.h"

namespace cairn::testing {
namespace {

using enum StoreOperation;

// A store with what it needs.
class Served {
 public:
  virtual ~Served() = default;
  [[nodiscard]] virtual BlockStore& store() = 0;
};

class ServedMemory final : public Served {
 public:
  explicit ServedMemory(std::size_t limit) : store_(std::make_shared<MemoryServer>(), steady_clock(), limit) {}
  BlockStore& store() override { return store_; }

 private:
  MemoryStore store_;
};

class ServedRedis final : public Served {
 public:
  ServedRedis(RedisServer server, std::size_t limit) : server_(std::move(server)) {
    store_ = *RedisStore::make(steady_clock(), {.address = *RedisAddress::parse(server_.url()), .limit = limit});
  }
  BlockStore& store() override { return *store_; }

 private:
  RedisServer server_;
  std::unique_ptr<RedisStore> store_;
};

class BlockStoreConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { open(4096); }
  void open(std::size_t limit) {
    served_.reset();
    if (GetParam() == "Memory") {
      served_ = std::make_unique<ServedMemory>(limit);
      return;
    }
    if (!RedisServer::is_installed()) {
      GTEST_SKIP() << "redis-server is not installed";
    }
    std::optional<RedisServer> server = RedisServer::start();
    ASSERT_TRUE(server.has_value());
    served_ = std::make_unique<ServedRedis>(*std::move(server), limit);
  }
  [[nodiscard]] BlockStore& store() { return served_->store(); }

  std::unique_ptr<Served> served_;
};

INSTANTIATE_TEST_SUITE_P(Stores, BlockStoreConformanceTest, ::testing::Values("Memory", "Redis"),
                         [](const auto& each) { return each.param; });

TEST_P(BlockStoreConformanceTest, WhatWasPutIsGot) {
  std::vector<std::byte> body = body_of(100'000, 1);
  EXPECT_EQ(answer(store(), kContains, {.key = "a"}).state, StoreState::kAbsent);
  EXPECT_EQ(answer(store(), kPut, {.key = "a", .label = label_of(7), .body = body}).state, StoreState::kDone);
  std::vector<std::byte> got(body.size());
  const StoreOutcome outcome = answer(store(), kGet, {.key = "a", .body = got});
  EXPECT_EQ(outcome.state, StoreState::kDone) << outcome.error;
  EXPECT_EQ(outcome.label, label_of(7));
  EXPECT_EQ(got, body);
  const StoreOutcome known = answer(store(), kContains, {.key = "a"});
  EXPECT_EQ(known.state, StoreState::kDone);
  EXPECT_EQ(known.label, label_of(7));
}

TEST_P(BlockStoreConformanceTest, KeysAndBodiesAreAnyBytes) {
  const std::string key("\0\r\n{a}b\xff $3", 12);
  std::vector<std::byte> body = {std::byte{'\r'}, std::byte{'\n'}, std::byte{0}};
  EXPECT_EQ(answer(store(), kPut, {.key = key, .label = label_of(1), .body = body}).state, StoreState::kDone);
  std::vector<std::byte> got(3);
  EXPECT_EQ(answer(store(), kGet, {.key = key, .body = got}).state, StoreState::kDone);
  EXPECT_EQ(got, body);
}

TEST_P(BlockStoreConformanceTest, AnEmptyBodyIsAValue) {
  EXPECT_EQ(answer(store(), kPut, {.key = "e", .label = label_of(9)}).state, StoreState::kDone);
  const StoreOutcome outcome = answer(store(), kGet, {.key = "e"});
  EXPECT_EQ(outcome.state, StoreState::kDone);
  EXPECT_EQ(outcome.label, label_of(9));
}

TEST_P(BlockStoreConformanceTest, PutKeepsAndReplaceReplaces) {
  std::vector<std::byte> first = body_of(10, 1);
  std::vector<std::byte> second = body_of(10, 2);
  std::vector<std::byte> got(10);
  EXPECT_EQ(answer(store(), kPut, {.key = "k", .label = label_of(1), .body = first}).state, StoreState::kDone);
  EXPECT_EQ(answer(store(), kPut, {.key = "k", .label = label_of(2), .body = second}).state, StoreState::kDone);
  EXPECT_EQ(answer(store(), kGet, {.key = "k", .body = got}).label, label_of(1));
  EXPECT_EQ(got, first);
  EXPECT_EQ(answer(store(), kReplace, {.key = "k", .label = label_of(2), .body = second}).state, StoreState::kDone);
  EXPECT_EQ(answer(store(), kGet, {.key = "k", .body = got}).label, label_of(2));
  EXPECT_EQ(got, second);
}

TEST_P(BlockStoreConformanceTest, WhatWasErasedIsAbsent) {
  EXPECT_EQ(answer(store(), kErase, {.key = "none"}).state, StoreState::kDone);
  EXPECT_EQ(answer(store(), kPut, {.key = "k", .label = label_of(1)}).state, StoreState::kDone);
  EXPECT_EQ(answer(store(), kErase, {.key = "k"}).state, StoreState::kDone);
  EXPECT_EQ(answer(store(), kGet, {.key = "k"}).state, StoreState::kAbsent);
}

TEST_P(BlockStoreConformanceTest, AValueOfAnotherSizeIsCorruptAndTheNextOnesAreRight) {
  std::vector<std::byte> body = body_of(1000, 1);
  EXPECT_EQ(answer(store(), kPut, {.key = "k", .label = label_of(1), .body = body}).state, StoreState::kDone);
  std::vector<std::byte> small(999);
  std::vector<std::byte> large(1001);
  std::vector<std::byte> right(1000);
  const std::vector<StoreOutcome> outcomes =
      answers(store(), kGet, {{.key = "k", .body = small}, {.key = "k", .body = large}, {.key = "k", .body = right}});
  EXPECT_EQ(outcomes[0].state, StoreState::kCorrupt);
  EXPECT_EQ(outcomes[1].state, StoreState::kCorrupt);
  EXPECT_EQ(outcomes[2].state, StoreState::kDone);
  EXPECT_EQ(right, body);
}

TEST_P(BlockStoreConformanceTest, ManyItemsGetTheirOwnOutcomes) {
  constexpr std::size_t kItems = 500;
  std::vector<std::vector<std::byte>> bodies;
  std::vector<std::vector<std::byte>> got(kItems);
  std::vector<StoreItem> puts;
  std::vector<StoreItem> gets;
  for (std::size_t i = 0; i < kItems; ++i) {
    bodies.push_back(body_of(i * 37 % 5000, static_cast<unsigned>(i)));
    got[i].resize(bodies[i].size());
  }
  for (std::size_t i = 0; i < kItems; ++i) {
    const std::string key = "key" + std::to_string(i);
    if (i % 5 != 0) {
      puts.push_back({.key = key, .label = label_of(static_cast<unsigned char>(i)), .body = bodies[i]});
    }
    gets.push_back({.key = key, .body = got[i]});
  }
  for (const StoreOutcome& outcome : answers(store(), kPut, puts)) {
    EXPECT_EQ(outcome.state, StoreState::kDone) << outcome.error;
  }
  const std::vector<StoreOutcome> outcomes = answers(store(), kGet, gets);
  for (std::size_t i = 0; i < kItems; ++i) {
    ASSERT_EQ(outcomes[i].state, i % 5 == 0 ? StoreState::kAbsent : StoreState::kDone) << i;
    if (i % 5 != 0) {
      ASSERT_EQ(got[i], bodies[i]);
      ASSERT_EQ(outcomes[i].label, label_of(static_cast<unsigned char>(i)));
    }
  }
}

TEST_P(BlockStoreConformanceTest, ADeadlineThatHasPassedIsExpired) {
  EXPECT_EQ(answer(store(), kContains, {.key = "a"}, Duration(-1)).state, StoreState::kExpired);
}

TEST_P(BlockStoreConformanceTest, MoreThanTheLimitIsRefused) {
  open(2);
  bool is_called = false;
  const Status refused = store().submit({.operation = kContains,
                                         .items = {{.key = "a"}, {.key = "b"}, {.key = "c"}},
                                         .done = [&](std::size_t, StoreOutcome&&) { is_called = true; }});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(answer(store(), kContains, {.key = "a"}).state, StoreState::kAbsent);
  EXPECT_FALSE(is_called);
}

TEST_P(BlockStoreConformanceTest, NothingIsTakenAfterClose) {
  store().close();
  const Status refused = store().submit({.operation = kContains, .items = {{.key = "a"}}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace cairn::testing
