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
    // One was taken since the last check; a batch in flight is neither free nor ready.
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
  EXPECT_EQ(world.offloader->status().copied, world.below().stats().registered);
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

// Blocks of others, unused: every block of the lower tier would have to make room.
void fill_below(World& world) {
  cache(world.below(), chain(9'999, world.below().capacity()));
  (void)world.arrived();
}

TEST(OffloadAheadTest, WhatIsRegisteredIsCopiedWhileThereIsFreeRoomBelow) {
  World world({.upper = 64, .lower = 64, .low_water = 2});
  const Keys keys = chain(1, 20);
  world.put(keys);
  EXPECT_EQ(world.woken, 1);
  EXPECT_FALSE(world.offloader->is_idle());
  world.drain();
  EXPECT_EQ(world.arrived(), keys) << "heads before tails";
  EXPECT_EQ(world.above().counts().ready, 0U) << "nothing has to be evicted";
  EXPECT_EQ(world.offloader->status().offered, 20U);
  // As long as nothing is evicted for it.
  world.put(chain(2, 44));
  world.drain();
  EXPECT_EQ(world.below().counts().free, 0U);
  EXPECT_EQ(world.below().stats().evicted, 0U);
  world.put(chain(3, 1));
  world.drain();
  EXPECT_EQ(world.below().stats().evicted, 0U);
  EXPECT_EQ(world.above().stats().evicted, 1U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, WithoutFreeRoomVictimsAreCopiedAndOthersAreNot) {
  World world({.upper = 8, .lower = 64, .low_water = 2, .leaves_first = true});
  fill_below(world);
  world.put(chain(1, 6));
  EXPECT_FALSE(world.offloader->pump());
  EXPECT_EQ(world.offloader->status().offered, 0U);
  const int woken = world.woken;
  world.put(chain(2, 1));
  EXPECT_GT(world.woken, woken);
  EXPECT_TRUE(world.offloader->pump());
  // One is free; three more make twice the low water.
  EXPECT_EQ(world.above().counts().ready, 3U);
  world.drain();
  // Three are about to be evicted, and could not be loaded without the blocks before them.
  EXPECT_EQ(world.arrived(), chain(1, 6));
  EXPECT_EQ(world.below().stats().evicted, 6U);
  EXPECT_FALSE(world.is_below(chain(2, 1)[0]));
  EXPECT_EQ(world.above().counts().active, 0U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, AFullTierKeepsWorking) {
  World world({.upper = 64, .lower = 128, .low_water = 4, .leaves_first = true});
  fill_below(world);
  std::vector<Keys> sequences;
  for (std::uint64_t name = 0; name < 100; ++name) {
    sequences.push_back(chain(name, 7));
    world.put(sequences.back());
    world.run_for(milliseconds(20));
  }
  EXPECT_EQ(world.registry->evicted_unsaved(CacheLevel::kG2), 0U);
  for (std::size_t i = 100 - 64 / 7 - 10; i < 100; ++i) {
    for (const BlockKey& key : sequences[i]) {
      EXPECT_TRUE(world.above().contains(key) || world.is_whole_below(key)) << i;
    }
  }
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, RoomThatComesFreeBelowIsUsed) {
  World world({.upper = 32, .lower = 64, .low_water = 2});
  fill_below(world);
  const Keys keys = chain(1, 20);
  world.put(keys);
  world.drain();
  EXPECT_EQ(world.offloader->status().offered, 0U);
  (void)world.below().reset_inactive();
  EXPECT_FALSE(world.offloader->is_idle());
  world.drain();
  EXPECT_EQ(world.arrived(), keys) << "heads before tails";
  EXPECT_EQ(world.offloader->status().copied, 20U);
}

TEST(OffloadAheadTest, TheWaterFollowsTheAllocations) {
  World world({.upper = 128, .lower = 256, .low_water = 4});
  fill_below(world);
  for (std::uint64_t name = 0; name < 12; ++name) {
    world.put(chain(name, 24));
    world.run_for(milliseconds(20));
  }
  const PoolCounts counts = world.above().counts();
  EXPECT_GE(counts.free + counts.ready, 24U);
  EXPECT_EQ(world.registry->evicted_unsaved(CacheLevel::kG2), 0U);
  // After many smaller allocations it falls again.
  for (std::uint64_t name = 100; name < 600; ++name) {
    world.put(chain(name, 4));
    world.run_for(milliseconds(2));
  }
  EXPECT_LT(world.above().counts().free + world.above().counts().ready, 24U);
}

TEST(OffloadAheadTest, BlocksBeyondTheQueueLimitAreFoundAgain) {
  World world({.upper = 256, .lower = 512, .low_water = 4, .offload = {.batch = 8, .queue = 16}});
  const Keys keys = chain(1, 200);
  world.put(keys);
  world.drain();
  EXPECT_GT(world.refused(OffloadRefusal::kShed), 0U);
  EXPECT_EQ(world.below().match_prefix(keys).size(), 200U);
  EXPECT_EQ(world.offloader->status().copied, 200U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, ATierThatWasOutGetsWhatItMissed) {
  World world({.upper = 64,
               .lower = 256,
               .low_water = 4,
               .offload = {.batch = 1, .in_flight = 1},
               .faults = {.rules = {{.fault = Fault::kFail, .at = 1}, {.fault = Fault::kFail, .at = 2}}},
               .health = {.failures = 1, .first_wait = seconds(1), .longest_wait = seconds(1)}});
  world.put(chain(1, 10));
  world.drain();
  EXPECT_FALSE(world.lower->is_up(TierUse::kWriting));
  world.put(chain(2, 10));
  world.drain();
  EXPECT_TRUE(world.offloader->is_idle());
  world.clock.advance(seconds(3));
  world.put(chain(3, 1));  // the trial
  world.drain();
  world.clock.advance(seconds(3));
  world.put(chain(4, 1));
  world.drain();
  ASSERT_TRUE(world.lower->is_up(TierUse::kWriting));
  for (const std::uint64_t name : {1, 2}) {
    EXPECT_EQ(world.below().match_prefix(chain(name, 10)).size(), 10U) << name;
  }
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, ABlockThatCouldNotBeLoadedIsNotCopied) {
  World world({.upper = 16, .lower = 64, .low_water = 2, .link = {.latency = seconds(1)}});
  const Keys keys = chain(1, 3);
  world.put(keys);
  (void)world.above().discard({{keys[0]}});
  world.drain();
  EXPECT_EQ(world.refused(OffloadRefusal::kGone), 1U);
  EXPECT_EQ(world.refused(OffloadRefusal::kNoParent), 1U);
  EXPECT_FALSE(world.is_below(keys[1]));
  // The first of a sequence may be below only.
  world.put(chain(2, 2));
  world.drain();
  (void)world.above().reset(chain(2, 1));
  world.put({chain(2, 3)[2]});
  world.drain();
  EXPECT_EQ(world.below().match_prefix(chain(2, 3)).size(), 3U);
}

TEST(OffloadAheadTest, ParentsAreCopiedFirstWhateverTheirPriority) {
  World world({.upper = 64, .lower = 64, .low_water = 2, .offload = {.batch = 1, .in_flight = 1}});
  const Keys keys = chain(1, 4);
  const Keys other = chain(2, 1);
  world.put(other, {.priority = 50});
  const ImmutableBlocks head = world.fill(first_of(keys, 3), {.priority = 10});
  world.put({keys[3]}, {.priority = 90});
  world.drain();
  EXPECT_EQ(world.arrived(), joined(keys, other));
}

TEST(OffloadAheadTest, WhatIsBelowAlreadyIsReadyAtOnce) {
  World world({.upper = 8, .low_water = 3});
  const Keys keys = singles(0, 7);
  put_each(world, first_of(keys, 5));
  world.drain();
  put_each(world, {keys[5]});  // two are free: four more are needed
  (void)world.offloader->pump();
  EXPECT_EQ(world.above().counts().ready, 4U);
  EXPECT_EQ(world.refused(OffloadRefusal::kAlreadyBelow), 4U);
  EXPECT_EQ(world.offloader->status().in_flight, 1U) << "the new one";
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 6U);
  EXPECT_EQ(world.below().stats().deduplicated, 0U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, CopiesLeaveRoomForAllocations) {
  World world({.upper = 64, .low_water = 2, .link = {.latency = milliseconds(20)}});
  put_each(world, singles(0, 40));
  world.settle();
  EXPECT_EQ(world.above().counts().borrowed, 8U) << "an eighth of the pool";
  EXPECT_EQ(world.offloader->status().in_flight, 8U) << "in two batches";
  world.drain();
  // An allocation of nearly all of the pool must find room while copies are in flight.
  world.put(chain(100, 60));
  world.settle();
  EXPECT_LE(world.above().counts().borrowed, 4U);
  EXPECT_GE(world.offloader->status().in_flight, 1U);
  world.put(chain(101, 60));
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  world.drain();
}

TEST(OffloadAheadTest, BlocksInUseAreCopiedWhereNothingElseIsLeft) {
  World world({.upper = 64, .low_water = 2, .link = {.latency = milliseconds(20)}});
  std::vector<ImmutableBlocks> in_use;
  for (std::uint64_t name = 0; name < 62; ++name) {
    in_use.push_back(world.fill(chain(name, 1)));
  }
  world.settle();
  EXPECT_EQ(world.offloader->status().in_flight, 8U);
  EXPECT_EQ(world.above().counts().borrowed, 0U);
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 62U);
}

TEST(OffloadAheadTest, ASlowLinkDelaysNoAllocation) {
  World world({.upper = 16, .low_water = 2, .link = {.latency = seconds(1)}});
  for (std::uint64_t name = 0; name < 200; ++name) {
    world.put(singles(name, 1));
    world.settle();
  }
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  EXPECT_GT(world.teller.removed.size(), 150U);
  world.drain();
  EXPECT_EQ(world.above().counts().active, 0U);
  EXPECT_GT(world.offloader->status().copied, 0U);
}

TEST(OffloadAheadTest, AVictimThatIsUsedAgainIsNoVictim) {
  World world({.upper = 8, .low_water = 2});
  const Keys keys = singles(0, 8);
  put_each(world, keys);
  (void)world.offloader->pump();
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
  // Each twice: when they are registered, and when they are about to be evicted.
  EXPECT_EQ(world.refused(OffloadRefusal::kLowPriority), 6U);
  EXPECT_EQ(world.refused(OffloadRefusal::kTooShort), 4U);
  EXPECT_THAT(world.arrived(), ElementsAreArray(longer));
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, WritesOnlyWhatWasUsedTwiceIfConfigured) {
  World world({.upper = 8, .low_water = 4, .offload = {.least_uses = 2}});
  const Keys keys = singles(0, 8);
  put_each(world, first_of(keys, 4));
  (void)world.above().match_prefix({{keys[1]}});
  put_each(world, {keys[4], keys[5], keys[6], keys[7]});
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAreArray({keys[1]}));
  EXPECT_EQ(world.refused(OffloadRefusal::kNeverSeenTwice), 14U)
      << "each when it is registered, and when it is about to be evicted";
  EXPECT_EQ(world.above().counts().ready, 8U);
}

TEST(OffloadAheadTest, KeepsToTheWriteBudget) {
  World world({.upper = 8, .low_water = 4, .offload = {.bytes_per_day = 24 * 3 * 64}});
  put_each(world, singles(0, 8));
  world.drain();
  EXPECT_EQ(world.offloader->status().copied + world.refused(OffloadRefusal::kOverBudget),
            world.offloader->status().offered);
  EXPECT_GE(world.refused(OffloadRefusal::kOverBudget), 5U);
  EXPECT_LE(world.offloader->status().copied, 3U);
  EXPECT_GE(world.offloader->status().copied, 1U);
}

TEST(OffloadAheadTest, WhatIsRegisteredWhilePausedIsCopiedAfterwards) {
  World world({.upper = 16, .low_water = 4, .offload = {.batch = 1, .in_flight = 1}});
  const Keys keys = singles(0, 14);
  put_each(world, first_of(keys, 4));
  (void)world.offloader->pump();
  EXPECT_EQ(world.offloader->status().in_flight, 1U);
  world.offloader->pause();
  EXPECT_TRUE(world.offloader->status().is_paused);
  put_each(world, Keys(keys.begin() + 4, keys.end()));
  world.run_for(milliseconds(20));
  EXPECT_EQ(world.offloader->status().copied, 1U);
  EXPECT_EQ(world.offloader->status().pending, 3U);
  EXPECT_EQ(world.above().counts().ready, 0U) << "nothing is claimed";
  world.offloader->resume();
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 14U);
  world.expect_accounts_add_up();
}

TEST(OffloadAheadTest, APausedLinkBeginsNothing) {
  World world({.upper = 8, .low_water = 4});
  put_each(world, singles(0, 8));
  world.link->pause(true);
  world.settle();
  EXPECT_EQ(world.offloader->status().in_flight, 0U);
  EXPECT_EQ(world.above().counts().ready, 0U);
  world.link->pause(false);
  EXPECT_TRUE(world.offloader->pump());
  EXPECT_EQ(world.offloader->status().in_flight, 1U);
}

TEST(OffloadAheadTest, AfterTheEndNothingIsClaimed) {
  World world({.upper = 8, .low_water = 4, .offload = {.batch = 1, .in_flight = 1}});
  put_each(world, singles(0, 8));
  (void)world.offloader->pump();
  EXPECT_EQ(world.offloader->status().in_flight, 1U);
  world.offloader->end();
  EXPECT_FALSE(world.offloader->is_idle());
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 1U);
  EXPECT_EQ(world.above().counts().active, 0U);
  EXPECT_FALSE(world.offloader->pump());
}

TEST(OffloadAheadTest, RefusesOptionsThatMakeNoSense) {
  const World world({});
  for (const OffloadOptions& options : {OffloadOptions{.batch = 0}, OffloadOptions{.in_flight = 0}}) {
    const auto offloader = Offloader::make(*world.link, *world.registry, options, world.clock, [] {}, {});
    ASSERT_FALSE(offloader);
    expect_error(offloader.error(), ErrorCode::kInvalidArgument, "each is at least 1");
  }
  const auto offloader =
      Offloader::make(*world.link, *world.registry, OffloadOptions{.least_uses = 9}, world.clock, [] {}, {});
  ASSERT_FALSE(offloader);
  expect_error(offloader.error(), ErrorCode::kInvalidArgument, "uses are counted up to");
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
