// The manager with a store that others operate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/cluster/memory_store_testing.h"
#include "cairn/cluster/redis_server_testing.h"
#include "cairn/manager/manager_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

// Everything but the sizes, the address and the secret is as a user finds it.
ManagerConfig remote_config(const std::string& url) {
  ManagerConfig config;
  config.block_size = kBlockSize;
  config.model = {
      .name = "reference", .secret = kSecret, .layers = 3, .heads = 2, .head_size = 8, .element_type = "f16"};
  config.device.blocks = 32;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = 64;
  config.remote.url = url;
  return config;
}

// How many of the keys the store is known to have, once it was asked.
std::uint32_t find_remote(const KvBlockManager& manager, const Keys& keys) {
  std::atomic<std::int64_t> found{-1};
  manager.find_remote(keys, TimePoint::max(), [&](std::uint32_t known) {
    found = known;
    found.notify_one();
  });
  found.wait(-1);
  return static_cast<std::uint32_t>(found.load());
}

// No block is held, and none is lost.
void expect_no_leak(const KvBlockManager& manager) {
  ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG4}) {
    const PoolCounts counts = manager.pool(level)->counts();
    EXPECT_EQ(counts.active + counts.quarantined, 0U) << to_string(level);
    EXPECT_EQ(counts.free + counts.inactive, counts.total) << to_string(level);
  }
}

TEST(ManagerRemoteTest, ARestartedManagerLoadsFromRedisWhatAnotherSaved) {
  if (!RedisServer::is_installed()) {
    GTEST_SKIP() << "redis-server is not installed";
  }
  const std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  const Keys keys = chain(1, 20);
  {
    const KvBlockManager first = *KvBlockManager::make(remote_config(server->url()));
    ASSERT_EQ(find_remote(first, keys), 0U);
    cache_on_device(first, keys);
    expect_no_leak(first);
    EXPECT_EQ(first.remote()->counts().registered, 20U);
  }
  const KvBlockManager second = *KvBlockManager::make(remote_config(server->url()));
  while (find_remote(second, keys) == 0) {  // until it is connected
  }
  EXPECT_EQ(second.locate(keys).levels, std::vector<CacheLevel>(20, CacheLevel::kG4));
  const Result<LoadOutcome> loaded = load_and_wait(second, keys);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 20U) << loaded->why;
  EXPECT_EQ(loaded->from[index_of(CacheLevel::kG4)], 20U);
  EXPECT_TRUE(hold_their_bytes(second, loaded->blocks));
  EXPECT_EQ(second.status().tiers.back().path, server->url());
}

TEST(ManagerRemoteTest, AStoreThatDiesIsMissesWithinTheDeadlineAndNoLeak) {
  if (!RedisServer::is_installed()) {
    GTEST_SKIP() << "redis-server is not installed";
  }
  std::optional<RedisServer> server = RedisServer::start();
  ASSERT_TRUE(server.has_value());
  ManagerConfig config = remote_config(server->url());
  config.health = {.failures = 2, .first_wait = std::chrono::hours(1), .longest_wait = std::chrono::hours(1)};
  const KvBlockManager manager = *KvBlockManager::make(config);
  while (find_remote(manager, chain(9, 1)) == 0 && manager.remote()->counts().registered == 0) {
    cache_on_device(manager, chain(9, 1));
    ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  }
  cache_on_device(manager, chain(1, 20));
  ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  (void)manager.reset(CacheLevel::kG1);
  (void)manager.reset(CacheLevel::kG2);
  ASSERT_EQ(manager.locate(chain(1, 20)).blocks(), 20U);
  server->kill();
  for (int i = 0; i < 4; ++i) {
    const Result<LoadOutcome> loaded = load_and_wait(manager, chain(1, 20));
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->prefix, 0U);
  }
  EXPECT_EQ(manager.locate(chain(1, 20)).blocks(), 0U);  // suspended
  const auto incidents = manager.status().incidents;
  ASSERT_FALSE(incidents.empty());
  EXPECT_EQ(incidents.front().level, CacheLevel::kG4);
  cache_on_device(manager, chain(2, 10));  // all else goes on
  EXPECT_EQ(load_and_wait(manager, chain(2, 10))->prefix, 10U);
  expect_no_leak(manager);
}

// The same with a store in memory, whose faults are exact.
class ManagerMemoryStoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] KvBlockManager make(ManagerConfig config = remote_config("redis://memory")) {
    ManagerParts parts;
    parts.store = [this] { return std::make_unique<MemoryStore>(server_, steady_clock()); };
    return *KvBlockManager::make(config, parts);
  }
  // A manager whose blocks of chain(1, count) are only in the store.
  [[nodiscard]] KvBlockManager make_with_stored(std::uint32_t count) {
    KvBlockManager manager = make();
    cache_on_device(manager, chain(1, count));
    EXPECT_TRUE(manager.drain(seconds(30)).has_value());
    (void)manager.reset(CacheLevel::kG1);
    (void)manager.reset(CacheLevel::kG2);
    EXPECT_EQ(manager.locate(chain(1, count)).levels, std::vector<CacheLevel>(count, CacheLevel::kG4));
    return manager;
  }

  std::shared_ptr<MemoryServer> server_ = std::make_shared<MemoryServer>();
};

TEST_F(ManagerMemoryStoreTest, AFlippedBitIsAMissAndAnIncident) {
  const KvBlockManager manager = make_with_stored(6);
  ASSERT_EQ(server_->flip_a_bit(kStoreLabelBytes + 100), 6U);
  const Result<LoadOutcome> loaded = load_and_wait(manager, chain(1, 6));
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 0U);
  EXPECT_EQ(manager.remote()->counts().registered, 0U);
  const auto incidents = manager.status().incidents;
  ASSERT_FALSE(incidents.empty());
  EXPECT_EQ(incidents.front().kind, Incident::Kind::kWrongBytes);
  EXPECT_EQ(incidents.front().level, CacheLevel::kG4);
  expect_no_leak(manager);
}

// A value that was moved to another key is whole, and still not the block that was asked for.
TEST_F(ManagerMemoryStoreTest, ABlockUnderAnotherKeyIsAMiss) {
  const KvBlockManager manager = make_with_stored(2);
  {
    const MutexLock lock(server_->mutex);
    std::vector<std::vector<std::byte>*> blocks;  // the era of the namespace is a value without a body
    for (auto& [key, value] : server_->values) {
      if (value.size() > kStoreLabelBytes) {
        blocks.push_back(&value);
      }
    }
    ASSERT_EQ(blocks.size(), 2U);
    std::swap(*blocks[0], *blocks[1]);
  }
  EXPECT_EQ(load_and_wait(manager, chain(1, 2))->prefix, 0U);
  expect_no_leak(manager);
}

// The store forgets when it wants: that is a miss, and neither a fault of the tier nor an incident.
TEST_F(ManagerMemoryStoreTest, WhatTheStoreNoLongerHasIsAMissAndForgotten) {
  const KvBlockManager manager = make_with_stored(6);
  server_->remove_blocks();
  EXPECT_EQ(load_and_wait(manager, chain(1, 6))->prefix, 0U);
  EXPECT_EQ(manager.remote()->counts().registered, 0U);
  EXPECT_TRUE(manager.status().incidents.empty());
  EXPECT_TRUE(manager.status().tiers.back().reading.is_up);
  expect_no_leak(manager);
}

TEST_F(ManagerMemoryStoreTest, AnotherManagersBlocksAreFoundByALaterLookup) {
  (void)make_with_stored(6);
  const KvBlockManager other = make();
  EXPECT_EQ(other.locate(chain(1, 6)).blocks(), 0U);  // asks in the background
  ASSERT_TRUE(other.drain(seconds(30)).has_value());
  EXPECT_EQ(other.locate(chain(1, 6)).levels, std::vector<CacheLevel>(6, CacheLevel::kG4));
  const Result<LoadOutcome> loaded = load_and_wait(other, chain(1, 6));
  EXPECT_EQ(loaded->prefix, 6U) << loaded->why;
  EXPECT_TRUE(hold_their_bytes(other, loaded->blocks));
}

TEST_F(ManagerMemoryStoreTest, TenantsAndModelsShareNothing) {
  (void)make_with_stored(6);
  ManagerConfig tenant = remote_config("redis://memory");
  tenant.model.tenant = "other";
  EXPECT_EQ(find_remote(make(tenant), chain(1, 6)), 0U);
  ManagerConfig weights = remote_config("redis://memory");
  weights.model.weights_generation = 1;
  EXPECT_EQ(find_remote(make(weights), chain(1, 6)), 0U);
  EXPECT_EQ(find_remote(make(), chain(1, 6)), 6U);
}

TEST_F(ManagerMemoryStoreTest, NothingFromBeforeAResetIsFoundHereOrAfterARestart) {
  {
    const KvBlockManager manager = make_with_stored(6);
    ASSERT_TRUE(manager.reset_all().has_value());
    EXPECT_EQ(find_remote(manager, chain(1, 6)), 0U);
    cache_on_device(manager, chain(2, 3));
    ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  }
  const KvBlockManager later = make();
  EXPECT_EQ(find_remote(later, chain(1, 6)), 0U);
  EXPECT_EQ(find_remote(later, chain(2, 3)), 3U);
}

TEST_F(ManagerMemoryStoreTest, NewWeightsFindNothingOfTheOldOnes) {
  const KvBlockManager manager = make_with_stored(6);
  ASSERT_TRUE(manager.invalidate(1).has_value());
  EXPECT_EQ(find_remote(manager, chain(1, 6)), 0U);
  cache_on_device(manager, chain(1, 2));
  ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  ManagerConfig config = remote_config("redis://memory");
  config.model.weights_generation = 1;
  EXPECT_EQ(find_remote(make(config), chain(1, 6)), 2U);
  EXPECT_EQ(find_remote(make(), chain(1, 6)), 6U);
}

TEST_F(ManagerMemoryStoreTest, AResetThatTheStoreDoesNotTakeSaysSo) {
  const KvBlockManager manager = make_with_stored(6);
  server_->set_fault([](StoreOperation, const StoreItem&) {
    return std::optional(StoreOutcome{.state = StoreState::kUnavailable, .error = "memory is gone"});
  });
  const Result<ResetReport> report = manager.reset_all();
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message, HasSubstr("memory is gone"));
  server_->set_fault({});
  EXPECT_EQ(manager.locate(chain(1, 6)).blocks(), 0U);
}

TEST_F(ManagerMemoryStoreTest, StatusAndMetricsNameTheRemoteTier) {
  const KvBlockManager manager = make_with_stored(3);
  EXPECT_EQ(manager.remote()->counts().registered, 3U);
  EXPECT_EQ(manager.status().offload.back().to, CacheLevel::kG4);
  EXPECT_EQ(manager.status().offload.back().copied, 3U);
  EXPECT_NE(manager.metrics().to_prometheus().find("cairn_remote_asked_total"), std::string::npos);
}

TEST_F(ManagerMemoryStoreTest, APrefetchBringsBlocksToTheHost) {
  const KvBlockManager manager = make_with_stored(6);
  OutcomeWaiter<std::uint32_t> waiter(manager);
  ASSERT_TRUE(manager.prefetch({.keys = chain(1, 6), .done = waiter.done()}).has_value());
  EXPECT_EQ(*waiter.wait(), 6U);
  EXPECT_TRUE(hold_their_bytes(manager, manager.host()->match_prefix(chain(1, 6))));
}

TEST(ManagerRemoteConfigTest, MistakesAreExplained) {
  ManagerConfig config = remote_config("ftp://x");
  config.model.secret.clear();
  config.host.blocks = 0;
  config.offload_to_remote.mode = OffloadMode::kAhead;
  const Status status = config.validate();
  ASSERT_FALSE(status.has_value());
  for (const char* text :
       {"remote.url: 'ftp' is no store", "there is no host tier", "no model.secret", "write-through or off"}) {
    EXPECT_THAT(status.error().message, HasSubstr(text));
  }
}

}  // namespace
}  // namespace cairn::testing
