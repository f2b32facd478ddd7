#include "cairn/pool/block_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>

#include "cairn/pool/block_pool.h"
#include "cairn/pool/pool_testing.h"

namespace cairn {
namespace {

BlockKey key(std::uint64_t number) { return BlockKey::make_checked(0, SequenceHash{number}, SequenceHash{0}); }

std::unique_ptr<BlockRegistry> new_registry(std::uint32_t keys) { return *BlockRegistry::create(keys); }

void put(BlockRegistry& registry, CacheLevel tier, std::uint64_t number) {
  const ResidentBlock block{.key = key(number)};
  registry.on_registered(tier, {&block, 1}, {});
}
void drop(BlockRegistry& registry, CacheLevel tier, std::uint64_t number) {
  const BlockKey removed = key(number);
  registry.on_removed(tier, {&removed, 1});
}

TEST(BlockRegistryTest, KnowsWhichTiersHoldAKeyAndForgetsItWithTheLast) {
  const auto registry = new_registry(8);
  put(*registry, CacheLevel::kG1, 7);
  put(*registry, CacheLevel::kG3, 7);
  EXPECT_TRUE(registry->tiers_of(key(7)).contains(CacheLevel::kG1));
  EXPECT_FALSE(registry->tiers_of(key(7)).contains(CacheLevel::kG2));
  EXPECT_TRUE(registry->tiers_of(key(7)).contains(CacheLevel::kG3));
  EXPECT_EQ(registry->size(), 1U);

  drop(*registry, CacheLevel::kG1, 7);
  EXPECT_EQ(registry->size(), 1U);
  drop(*registry, CacheLevel::kG3, 7);
  EXPECT_EQ(registry->size(), 0U);
  EXPECT_TRUE(registry->tiers_of(key(7)).empty());
}

TEST(BlockRegistryTest, CountsUseAndStopsAt255) {
  const auto registry = new_registry(8);
  EXPECT_EQ(registry->frequency(key(7)), 0U);
  put(*registry, CacheLevel::kG1, 7);
  EXPECT_EQ(registry->frequency(key(7)), 1U);
  const BlockKey matched = key(7);
  for (int i = 0; i < 300; ++i) {
    registry->on_matched(CacheLevel::kG1, {&matched, 1});
    EXPECT_EQ(registry->frequency(key(7)), static_cast<std::uint32_t>(std::min(2 + i, 255)));
  }
  drop(*registry, CacheLevel::kG1, 7);
  EXPECT_EQ(registry->frequency(key(7)), 0U);
}

TEST(BlockRegistryTest, AClearedTierIsForgottenAsAWhole) {
  const auto registry = new_registry(64);
  for (std::uint64_t i = 1; i <= 50; ++i) {
    put(*registry, CacheLevel::kG1, i);
    if (i % 2 == 0) {
      put(*registry, CacheLevel::kG2, i);
    }
  }
  registry->on_cleared(CacheLevel::kG1);
  EXPECT_EQ(registry->size(), 25U);
}

TEST(BlockRegistryTest, FollowsRealPools) {
  const auto registry = new_registry(4);
  const auto pool =
      *BlockPool::create({.capacity = 2, .block_size = 4, .tier = CacheLevel::kG2, .observers = {registry.get()}});
  const BlockKey keys[] = {key(1), key(2)};
  {
    auto complete = std::move(*pool->allocate(2)).complete({.keys = keys});
    const auto blocks = std::move(*complete).register_blocks();
    ASSERT_TRUE(blocks.has_value());
  }
  EXPECT_TRUE(registry->tiers_of(key(2)).contains(CacheLevel::kG2));
  EXPECT_EQ(pool->match_prefix(keys).size(), 2U);
  EXPECT_EQ(registry->frequency(key(2)), 2U);
  pool->reset({keys, 1});
  EXPECT_TRUE(registry->tiers_of(key(1)).empty());
  pool->reset_inactive();
  EXPECT_EQ(registry->size(), 0U);
}

TEST(BlockRegistryTest, ForgetsAllPoolsAtOnce) {
  const auto registry = new_registry(4);
  for (std::uint64_t number = 1; number < 100; ++number) {
    put(*registry, number % 2 == 0 ? CacheLevel::kG1 : CacheLevel::kG3, number);
  }
  ASSERT_TRUE(registry->expect_all_cleared());
  registry->on_cleared(CacheLevel::kG1);
  EXPECT_EQ(registry->size(), 99U) << "all go together";
  registry->all_cleared();
  EXPECT_EQ(registry->size(), 0U);
  EXPECT_TRUE(registry->tiers_of(key(1)).empty());
  put(*registry, CacheLevel::kG2, 1);
  EXPECT_EQ(registry->size(), 1U);
  registry->on_cleared(CacheLevel::kG2);
  EXPECT_EQ(registry->size(), 0U) << "with one pool alone";
}

// Against maps, in a table that starts too small and has to grow, with few distinct keys so that places collide.
RC_GTEST_PROP(BlockRegistryModelTest, AgreesWithMaps, ()) {
  const auto registry = new_registry(1);
  std::map<std::uint64_t, std::set<CacheLevel>> model;
  const int steps = *rc::gen::inRange(1, 400);
  for (int step = 0; step < steps; ++step) {
    const auto number = *rc::gen::inRange<std::uint64_t>(1, 60);
    const auto tier = static_cast<CacheLevel>(*rc::gen::inRange(0, 4));
    switch (*rc::gen::weightedElement<int>({{6, 0}, {5, 1}, {1, 2}})) {
      case 0:
        put(*registry, tier, number);
        model[number].insert(tier);
        break;
      case 1:
        drop(*registry, tier, number);
        model[number].erase(tier);
        break;
      default:
        registry->on_cleared(tier);
        for (auto& [_, tiers] : model) {
          tiers.erase(tier);
        }
    }
    std::erase_if(model, [](const auto& entry) { return entry.second.empty(); });
    RC_ASSERT(registry->size() == model.size());
    for (std::uint64_t i = 1; i < 60; ++i) {
      TierSet expected;
      if (model.contains(i)) {
        for (const CacheLevel held : model[i]) {
          expected.insert(held);
        }
      }
      RC_ASSERT(registry->tiers_of(key(i)) == expected);
    }
  }
}

using testing::cache;
using testing::chain;
using testing::Keys;
using testing::make_pool;

TEST(BlockRegistryTest, FindsRunsOfKeysWithTheSameNearestTier) {
  const std::unique_ptr<BlockRegistry> registry = *BlockRegistry::create(64);
  const auto device = make_pool(64, {.tier = CacheLevel::kG1, .observers = {registry.get()}});
  const auto host = make_pool(64, {.tier = CacheLevel::kG2, .observers = {registry.get()}});
  const auto disk = make_pool(64, {.tier = CacheLevel::kG3, .observers = {registry.get()}});
  const Keys keys = chain(1, 40);
  const auto part = [&](std::size_t first, std::size_t end) { return Keys(keys.begin() + first, keys.begin() + end); };
  cache(*device, part(0, 3));
  cache(*host, part(0, 25));
  cache(*disk, part(0, 38));
  TierSet all;
  all.insert(CacheLevel::kG1);
  all.insert(CacheLevel::kG2);
  all.insert(CacheLevel::kG3);
  const auto run = [&](const Keys& asked, TierSet among) {
    const std::optional<BlockRegistry::Run> found = registry->nearest_run(asked, among);
    return found ? std::pair(found->tier, found->keys) : std::pair(CacheLevel::kG4, 0U);
  };
  EXPECT_EQ(run(keys, all), std::pair(CacheLevel::kG1, 3U));
  EXPECT_EQ(run(part(3, 40), all), std::pair(CacheLevel::kG2, 22U));
  EXPECT_EQ(run(part(25, 40), all), std::pair(CacheLevel::kG3, 13U));
  EXPECT_EQ(run(part(38, 40), all), std::pair(CacheLevel::kG4, 0U));
  EXPECT_EQ(run({}, all), std::pair(CacheLevel::kG4, 0U));
  TierSet disk_only;
  disk_only.insert(CacheLevel::kG3);
  EXPECT_EQ(run(keys, disk_only), std::pair(CacheLevel::kG3, 38U));
  EXPECT_EQ(run(keys, TierSet()), std::pair(CacheLevel::kG4, 0U));
}

TEST(BlockRegistryTest, FindsTheNearestTierOfEachKeyUpToTheFirstThatIsNowhere) {
  const std::unique_ptr<BlockRegistry> registry = *BlockRegistry::create(512);
  const auto device = make_pool(512, {.tier = CacheLevel::kG1, .observers = {registry.get()}});
  const auto host = make_pool(512, {.tier = CacheLevel::kG2, .observers = {registry.get()}});
  const Keys keys = chain(1, 300);
  std::vector<CacheLevel> expected;
  for (std::size_t first = 0; first < 280; first += 8) {  // another tier every 8 keys, and the last 20 nowhere
    const bool is_on_device = first % 16 == 0;
    cache(is_on_device ? *device : *host, Keys(keys.begin() + first, keys.begin() + first + 8));
    expected.insert(expected.end(), 8, is_on_device ? CacheLevel::kG1 : CacheLevel::kG2);
  }
  cache(*host, Keys(keys.begin(), keys.begin() + 1));  // in both: the nearest counts
  cache(*host, Keys(keys.begin() + 290, keys.end()));  // beyond a gap
  TierSet both;
  both.insert(CacheLevel::kG1);
  both.insert(CacheLevel::kG2);
  EXPECT_EQ(registry->nearest_of_each(keys, both), expected);
  TierSet host_only;
  host_only.insert(CacheLevel::kG2);
  EXPECT_EQ(registry->nearest_of_each(keys, host_only), std::vector{CacheLevel::kG2});
  EXPECT_THAT(registry->nearest_of_each({}, both), ::testing::IsEmpty());
}

}  // namespace
}  // namespace cairn
