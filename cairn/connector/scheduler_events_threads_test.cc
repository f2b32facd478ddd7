// Events with an engine attached: whose they are, and the tokens of what its requests saved.
#include <gmock/gmock.h>

#include <algorithm>
#include <variant>

#include "cairn/connector/scheduler_testing.h"
#include "cairn/events/event_log.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;
using ::testing::IsEmpty;

constexpr std::size_t kPrompt = 18;  // four blocks of four tokens and two

std::vector<Event> events_of(const World& world) {
  return std::get<std::vector<Event>>(*world->manager().events()->read(1, 1000));
}
Snapshot snapshot_of(const World& world) {
  std::vector<const ResidentSource*> pools;
  for (const CacheLevel level : {CacheLevel::kG2, CacheLevel::kG3}) {
    if (const BlockPool* const pool = world->manager().pool(level)) {
      pools.push_back(pool);
    }
  }
  return *take_snapshot(*world->manager().events(), pools);
}
// The tokens that were stored in a tier, in the order of the positions.
std::vector<Token> stored_tokens(const World& world, CacheLevel tier) {
  std::vector<std::pair<std::uint32_t, std::vector<Token>>> parts;
  for (const Event& event : events_of(world)) {
    if (const auto* stored = std::get_if<Stored>(&event.data); stored != nullptr && event.tier == tier) {
      parts.emplace_back(stored->blocks.front().key.position(), stored->token_ids);
    }
  }
  std::ranges::sort(parts);
  std::vector<Token> all;
  for (const auto& [position, part] : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(SchedulerEventsTest, EventsSayWhoseTheyAreAndCarryNoTokensByDefault) {
  SchedulerConnector::Options options = small_options();
  options.manager.worker_id = 1337;
  options.manager.dp_rank = 2;
  World world(options);
  world.save_prompt("a", kPrompt);
  const EventSource source{.worker_id = 1337, .dp_rank = 2};
  const std::vector<Event> events = events_of(world);
  ASSERT_FALSE(events.empty());
  const auto keys = world.keys_of(kPrompt);
  for (const Event& event : events) {
    EXPECT_EQ(event.source, source);
    EXPECT_EQ(event.group, 0U);
    const auto& stored = std::get<Stored>(event.data);
    EXPECT_THAT(stored.token_ids, IsEmpty());
    const std::uint32_t position = stored.blocks.front().key.position();
    EXPECT_EQ(stored.parent, position == 0 ? std::nullopt : std::optional(keys[position - 1].sequence_hash()));
  }
  const Snapshot snapshot = snapshot_of(world);
  EXPECT_EQ(snapshot.source, source);
  EXPECT_THAT(snapshot.tiers[0].token_ids, IsEmpty());
}

TEST(SchedulerEventsTest, TokensOfSavedBlocksAreInTheEventsOfAllTiers) {
  const TestFolder folder;
  SchedulerConnector::Options options = small_options();
  options.manager.event_token_ids = true;
  options.manager.disk.blocks = 16;
  options.manager.disk.path = folder.in("blocks");
  options.manager.offload_to_disk.mode = OffloadMode::kOnRegistration;
  World world(options);
  world.save_prompt("a", kPrompt);
  ASSERT_TRUE(world->manager().drain(kConnectorPatience).has_value());
  const std::vector<Token> full = tokens(4 * kBlockSize);
  EXPECT_EQ(stored_tokens(world, CacheLevel::kG2), full);
  EXPECT_EQ(stored_tokens(world, CacheLevel::kG3), full) << "copied from host memory";
  for (const TierSnapshot& tier : snapshot_of(world).tiers) {
    ASSERT_EQ(tier.token_ids.size(), 4U) << to_string(tier.tier);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(tier.token_ids[i], tokens(kBlockSize, 100 + i * kBlockSize));
    }
  }
  // A save that fails leaves nothing behind.
  world.ranks[0]->fail(1);
  world.save_prompt("b", kPrompt, 0, 500);
  ASSERT_TRUE(world->manager().drain(kConnectorPatience).has_value());
  std::vector<ResidentBlock> lost;
  for (const BlockKey& key : world.keys_of(kPrompt, 500)) {
    lost.push_back({.key = key});
  }
  EXPECT_THAT(world->manager().events()->token_ids_of(lost), Each(IsEmpty()));
}

TEST(SchedulerEventsTest, TokensAreKnownUnderDigestsOfTheEngineToo) {
  SchedulerConnector::Options options = small_options();
  options.manager.event_token_ids = true;
  options.manager.model.scheme = KeyScheme::kVllm;
  World world(options);
  std::vector<std::byte> digests(4 * std::size_t{32});
  for (std::size_t i = 0; i < digests.size(); ++i) {
    digests[i] = static_cast<std::byte>(i);
  }
  const RequestHandle a = *world->add("a", {.tokens = tokens(kPrompt), .block_digests = {digests, 32}});
  const auto blocks = device_blocks(5);
  world.step({{.request = a, .new_blocks = blocks}});
  ASSERT_TRUE(*world->finish(a, kPrompt));
  world.drain();
  EXPECT_EQ(stored_tokens(world, CacheLevel::kG2), tokens(4 * kBlockSize));
}

}  // namespace
}  // namespace cairn
