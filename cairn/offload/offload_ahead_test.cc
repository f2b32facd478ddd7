// Copying ahead of need: victims of the upper pool.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// One sequence of one block for each name.
Keys singles(std::uint64_t first, std::uint64_t count) {
  Keys keys;
  for (std::uint64_t name = first; name < first + count; ++name) {
    keys.push_back(chain(name, 1)[0]);
  }
  return keys;
}

void put_each(World& world, const Keys& keys, const Retention& retention = {}) {
  for (const BlockKey& key : keys) {
    world.put({key}, retention);
  }
}

TEST(OffloadAheadTest, KeepsBlocksReadyUnderChurnAndEverythingEvictedIsBelow) {
  World world({.upper = 32, .lower = 1'024, .low_water = 4, .offload = {.batch = 4}});
  const Keys keys = singles(0, 500);
  for (const BlockKey& key : keys) {
    world.put({key});
    const PoolCounts counts = world.above().counts();
    // One was taken since the last look; a batch on its way is neither free nor ready.
    ASSERT_GE(counts.free + counts.ready, 3U) << key.to_string();
    world.run_for(milliseconds(2));
    const PoolCounts later = world.above().counts();
    ASSERT_GE(later.free + later.ready, 4U) << key.to_string();
  }
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  ASSERT_EQ(world.teller.removed.size(), 500U - 32 + world.above().counts().free);
  EXPECT_EQ(world.teller.removed, first_of(keys, world.teller.removed.size())) << "the order of the policy";
  for (const BlockKey& key : world.teller.removed) {
    ASSERT_TRUE(world.is_whole_below(key)) << key.to_string();
  }
  EXPECT_EQ(world.edge->status().copied, world.below().stats().registered);
  EXPECT_EQ(world.below().stats().deduplicated, 0U);
  world.expect_accounts_add_up();
  world.above().check_invariants();
}

TEST(OffloadAheadTest, ParentsAreBelowBeforeThoseAboveThemGoWhereLeavesGoFirst) {
  World world({.upper = 32, .lower = 1'024, .low_water = 4, .leaves_first = true, .offload = {.batch = 4}});
  for (std::uint64_t name = 0; name < 100; ++name) {
    world.put(chain(name, 5));
    world.run_for(milliseconds(4));
  }
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  EXPECT_GE(world.teller.removed.size(), 400U);
  for (const BlockKey& key : world.teller.removed) {
    ASSERT_TRUE(world.is_whole_below(key)) << key.to_string();
  }
}

TEST(OffloadAheadTest, IsWokenByThePoolAndDoesNothingWhileThereIsEnough) {
  World world({.upper = 8, .low_water = 2});
  put_each(world, singles(0, 6));
  EXPECT_EQ(world.woken, 0);
  EXPECT_FALSE(world.edge->pump());
  world.put(singles(6, 1));
  EXPECT_EQ(world.woken, 1);
  EXPECT_TRUE(world.edge->pump());
  // One is free; three more make twice the low water.
  EXPECT_EQ(world.edge->status().under_way, 3U);
  EXPECT_FALSE(world.edge->pump()) << "what is claimed is not claimed again";
  world.drain();
  EXPECT_EQ(world.above().counts().ready, 3U);
  EXPECT_EQ(world.above().counts().active, 0U);
}

TEST(OffloadAheadTest, WhatIsBelowAlreadyIsReadyAtOnce) {
  World world({.upper = 8, .low_water = 3});
  const Keys keys = singles(0, 7);
  put_each(world, first_of(keys, 5));
  Outcome outcome;
  ASSERT_TRUE(world.edge->offload({.keys = {keys[0], keys[2]}, .done = outcome.hear()}));
  world.drain();
  put_each(world, {keys[5]});  // two are free: four more are wanted, and keys[0], [2] were used last but one
  (void)world.edge->pump();
  EXPECT_EQ(world.refused(OffloadRefusal::kAlreadyBelow) + world.edge->status().under_way, 4U);
  EXPECT_EQ(world.above().counts().ready, world.refused(OffloadRefusal::kAlreadyBelow));
  world.drain();
  EXPECT_EQ(world.above().counts().ready, 4U);
  EXPECT_EQ(world.edge->status().copied, world.below().stats().registered);
  EXPECT_EQ(world.below().stats().deduplicated, 0U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, ClaimsOneBatchMoreThanAreUnderWay) {
  World world({.upper = 16, .low_water = 8, .offload = {.batch = 2, .in_flight = 2}});
  put_each(world, singles(0, 16));
  (void)world.edge->pump();
  OffloadStatus status = world.edge->status();
  EXPECT_EQ(status.under_way, 4U);
  EXPECT_EQ(status.waiting, 2U);
  EXPECT_EQ(world.above().counts().active, 6U);
  world.clock.advance(milliseconds(1));
  world.copies->run();
  while (world.executor->run_callbacks()) {
  }
  (void)world.edge->pump();
  status = world.edge->status();
  EXPECT_EQ(status.copied, 2U);
  EXPECT_EQ(status.under_way, 4U);
  EXPECT_EQ(status.waiting, 2U);
  world.drain();
  EXPECT_GE(world.above().counts().ready, 8U);
}

TEST(OffloadAheadTest, ASlowLinkDelaysNobody) {
  World world({.upper = 16, .low_water = 2, .link = {.latency = seconds(1)}});
  for (std::uint64_t name = 0; name < 200; ++name) {
    world.put(singles(name, 1));
    world.settle();
  }
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  EXPECT_GT(world.teller.removed.size(), 150U);
  world.drain();
  EXPECT_EQ(world.above().counts().active, 0U);
  EXPECT_GT(world.edge->status().copied, 0U);
}

TEST(OffloadAheadTest, AVictimThatIsUsedAgainIsNoVictim) {
  World world({.upper = 8, .low_water = 2});
  const Keys keys = singles(0, 8);
  put_each(world, keys);
  (void)world.edge->pump();
  const ImmutableBlocks in_use = world.above().match_prefix({{keys[0]}});
  EXPECT_EQ(in_use.size(), 1U);
  world.drain();
  EXPECT_EQ(world.above().counts().active, 1U);
  EXPECT_EQ(evicted_for(world.above(), 7), reversed(reversed(Keys(keys.begin() + 1, keys.end()))));
  EXPECT_TRUE(world.is_whole_below(keys[0]));
}

TEST(OffloadAheadTest, FiltersAndCountsWhatIsNotWorthIt) {
  World world({.upper = 8, .low_water = 4, .leaves_first = true, .offload = {.least_blocks = 2, .least_priority = 20}});
  const Keys longer = chain(100, 3);
  world.put(singles(0, 1));                    // too short
  world.put(longer);                           // long enough, the first of it because of the others
  world.put(chain(200, 3), {.priority = 10});  // of too low a priority
  world.put(singles(1, 1));
  world.drain();
  EXPECT_EQ(world.refused(OffloadRefusal::kLowPriority), 3U);
  EXPECT_EQ(world.refused(OffloadRefusal::kTooShort), 2U);
  EXPECT_THAT(world.arrived(), ElementsAreArray(reversed(longer)));
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, WritesOnlyWhatWasUsedTwiceWhereThatIsAsked) {
  World world({.upper = 8, .low_water = 4, .offload = {.least_uses = 2}});
  const Keys keys = singles(0, 8);
  put_each(world, first_of(keys, 4));
  (void)world.above().match_prefix({{keys[1]}});
  put_each(world, {keys[4], keys[5], keys[6], keys[7]});
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAreArray({keys[1]}));
  EXPECT_EQ(world.refused(OffloadRefusal::kNeverSeenTwice), 7U);
  EXPECT_EQ(world.above().counts().ready, 8U);
}

TEST(OffloadAheadTest, KeepsToTheWriteBudget) {
  World world({.upper = 8, .low_water = 4, .offload = {.bytes_per_day = 24 * 3 * 64}});
  put_each(world, singles(0, 8));
  world.drain();
  EXPECT_EQ(world.edge->status().copied + world.refused(OffloadRefusal::kOverBudget), 8U);
  EXPECT_LE(world.edge->status().copied, 3U);
  EXPECT_GE(world.edge->status().copied, 1U);
}

TEST(OffloadAheadTest, WhilePausedClaimsNothingAndLetsGoOfWhatHasNotBegun) {
  World world({.upper = 16, .low_water = 8, .offload = {.batch = 2, .in_flight = 1}});
  put_each(world, singles(0, 16));
  (void)world.edge->pump();
  EXPECT_EQ(world.edge->status().waiting, 2U);
  world.edge->pause();
  EXPECT_TRUE(world.edge->status().is_paused);
  EXPECT_EQ(world.edge->status().waiting, 0U);
  EXPECT_EQ(world.refused(OffloadRefusal::kCancelled), 2U);
  world.drain();
  EXPECT_EQ(world.edge->status().copied, 2U);
  EXPECT_EQ(world.above().counts().active, 0U);
  world.edge->resume();
  world.drain();
  EXPECT_GT(world.edge->status().copied, 2U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, APausedLinkBeginsNothing) {
  World world({.upper = 8, .low_water = 4});
  put_each(world, singles(0, 8));
  world.link->pause(true);
  EXPECT_FALSE(world.edge->pump());
  EXPECT_EQ(world.above().counts().active, 0U);
  world.link->pause(false);
  EXPECT_TRUE(world.edge->pump());
}

TEST(OffloadAheadTest, AfterTheEndNothingIsClaimed) {
  World world({.upper = 8, .low_water = 4, .offload = {.batch = 1, .in_flight = 1}});
  put_each(world, singles(0, 8));
  (void)world.edge->pump();
  EXPECT_EQ(world.edge->status().under_way, 1U);
  world.edge->end();
  EXPECT_FALSE(world.edge->is_idle());
  world.drain();
  EXPECT_EQ(world.edge->status().copied, 1U);
  EXPECT_EQ(world.above().counts().active, 0U);
  EXPECT_FALSE(world.edge->pump());
}

TEST(OffloadAheadTest, RefusesOptionsThatMakeNoSense) {
  const World world({});
  for (const OffloadOptions& options :
       {OffloadOptions{.batch = 0}, OffloadOptions{.in_flight = 0}, OffloadOptions{.queue = 0}}) {
    const auto edge = OffloadEdge::make(*world.link, *world.registry, options, world.clock, [] {});
    ASSERT_FALSE(edge);
    expect_error(edge.error(), ErrorCode::kInvalidArgument, "each is at least 1");
  }
  const auto edge =
      OffloadEdge::make(*world.link, *world.registry, OffloadOptions{.least_uses = 9}, world.clock, [] {});
  ASSERT_FALSE(edge);
  expect_error(edge.error(), ErrorCode::kInvalidArgument, "uses are counted up to");
}

TEST(OffloadAheadTest, EveryRefusalHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
    names.insert(to_string(static_cast<OffloadRefusal>(i)));
  }
  EXPECT_EQ(names.size(), kOffloadRefusals);
  EXPECT_EQ(to_string(OffloadRefusal::kAlreadyBelow), "already below");
  EXPECT_EQ(to_string(OffloadRefusal::kCancelled), "cancelled");
}

}  // namespace
}  // namespace cairn::testing
