// A manager that publishes its events, as routers see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cairn/events/event_receiver.h"
#include "cairn/manager/manager_testing.h"

namespace cairn::testing {
namespace {

using ::testing::HasSubstr;

ManagerConfig publishing_config(const TestFolder& folder) {
  ManagerConfig config = reference_config(folder.in("blocks"), 8, 16, 16);
  config.events.publish = "tcp://127.0.0.1:*";
  config.events.replay = "tcp://127.0.0.1:*";
  config.events.mode = EventMode::kPassthrough;
  return config;
}

TEST(KvBlockManagerEventsTest, ARouterHearsOfEveryTier) {
  const TestFolder folder;
  const KvBlockManager manager = *KvBlockManager::make(publishing_config(folder));
  const Keys keys = chain(1, 3);
  cache_on_device(manager, keys);
  ASSERT_TRUE(manager.drain(std::chrono::seconds(30)).has_value());
  const EventPublisherStatus published = manager.status().events.value().published;
  const auto receiver = *EventReceiver::create({.endpoint = published.endpoint,
                                                .replay_endpoint = published.replay_endpoint,
                                                .replay_limit = std::chrono::seconds(30)});
  std::set<std::pair<CacheLevel, std::uint64_t>> blocks;
  for (int step = 0; step < 2000 && blocks.size() < 9; ++step) {
    std::vector<ReceivedEvents> received;
    receiver->receive(received);
    for (const ReceivedEvents& one : received) {
      for (const KvEvent& event : one.batch.events) {
        if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
          for (const std::uint64_t hash : stored->hashes) {
            blocks.emplace(event.tier, hash);
          }
        }
      }
    }
    ASSERT_TRUE(receiver->wait(std::chrono::milliseconds(10)));
  }
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    for (const BlockKey& key : keys) {
      EXPECT_TRUE(blocks.contains({level, value_of(key.sequence_hash())})) << to_string(level);
    }
  }
  EXPECT_THAT(manager.metrics().to_prometheus(), HasSubstr("cairn_event_blocks_announced 9"));
}

TEST(KvBlockManagerEventsTest, AnEndpointInUseIsAnErrorThatNamesTheSection) {
  const TestFolder folder;
  const KvBlockManager manager = *KvBlockManager::make(publishing_config(folder));
  const TestFolder other;
  ManagerConfig second = publishing_config(other);
  second.events.publish = manager.status().events.value().published.endpoint;
  const Result<KvBlockManager> refused = KvBlockManager::make(second);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("[events]: cannot listen on 'tcp://127.0.0.1:"));
}

TEST(KvBlockManagerEventsTest, SettingsThatDoNotFitAreMistakes) {
  const TestFolder folder;
  const auto mistake = [&](const std::function<void(ManagerConfig&)>& change) {
    ManagerConfig config = publishing_config(folder);
    change(config);
    const Status status = config.validate();
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(mistake([](ManagerConfig&) {}), "");
  EXPECT_THAT(mistake([](ManagerConfig& config) { config.events.publish.clear(); }),
              HasSubstr("events.replay is given, but events.publish is empty"));
  EXPECT_THAT(mistake([](ManagerConfig& config) { config.event_log = 0; }), HasSubstr("set event_log"));
  EXPECT_THAT(mistake([](ManagerConfig& config) { config.events.mode = EventMode::kDedup; }),
              HasSubstr("set event_token_ids, events.engine, or events.mode"));
  EXPECT_THAT(mistake([](ManagerConfig& config) { config.events.engine = "tcp://localhost:5557"; }),
              HasSubstr("keys of scheme native cannot be compared"));
  EXPECT_THAT(mistake([](ManagerConfig& config) { config.events.engine_replay = "tcp://localhost:5557"; }),
              HasSubstr("events.engine is empty"));
}

}  // namespace
}  // namespace cairn::testing
