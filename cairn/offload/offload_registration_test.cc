// Write-through: blocks are copied as they are registered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::UnorderedElementsAreArray;

constexpr OffloadOptions kWriteThrough{.mode = OffloadMode::kOnRegistration};

OffloadOptions one_at_a_time(std::uint32_t queue = 4'096) {
  OffloadOptions options = kWriteThrough;
  options.batch = 1;
  options.in_flight = 1;
  options.queue = queue;
  return options;
}

TEST(OffloadRegistrationTest, CopiesEverythingOnce) {
  World world({.upper = 64, .offload = kWriteThrough});
  Keys all;
  for (std::uint64_t name = 0; name < 10; ++name) {
    const Keys keys = chain(name, 5);
    world.put(keys);
    all = joined(all, keys);
    if (name % 3 == 0) {
      world.run_for(milliseconds(2));
    }
  }
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 50U);
  EXPECT_THAT(world.arrived(), UnorderedElementsAreArray(all));
  for (const BlockKey& key : all) {
    ASSERT_TRUE(world.is_whole_below(key));
  }
  EXPECT_EQ(world.below().stats().deduplicated, 0U);
  EXPECT_EQ(world.above().counts().pinned, 0U);
  world.expect_accounts_add_up();
}

TEST(OffloadRegistrationTest, WhatIsBelowIsNotCopiedAgain) {
  World world({.offload = kWriteThrough});
  const Keys keys = chain(1, 3);
  world.put(keys);
  world.drain();
  (void)world.above().reset(keys);
  world.put(keys);
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 3U);
  EXPECT_EQ(world.refused(OffloadRefusal::kAlreadyBelow), 3U);
}

TEST(OffloadRegistrationTest, AKeyThatIsRegisteredAnewWhileItIsCopiedIsCopiedOnce) {
  World world({.offload = kWriteThrough});
  const Keys keys = chain(1, 1);
  world.put(keys);
  (void)world.offloader->pump();
  EXPECT_EQ(world.above().discard(keys), 1U);
  world.put(keys);
  (void)world.offloader->pump();
  EXPECT_EQ(world.refused(OffloadRefusal::kInFlight), 1U);
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 1U);
  EXPECT_TRUE(world.is_whole_below(keys[0]));
}

TEST(OffloadRegistrationTest, IsWokenOnceUntilItHasLooked) {
  World world({.offload = kWriteThrough});
  world.put(chain(1, 1));
  world.put(chain(2, 1));
  EXPECT_EQ(world.woken, 1);
  EXPECT_FALSE(world.offloader->is_idle());
  (void)world.offloader->pump();
  world.put(chain(3, 1));
  EXPECT_EQ(world.woken, 2);
}

TEST(OffloadRegistrationTest, TheMostValuableGoFirst) {
  World world({.offload = one_at_a_time()});
  const Keys first = chain(0, 1);
  world.put(first);
  world.settle();  // in flight
  const Keys low = chain(1, 2);
  const Keys high = chain(2, 1);
  const Keys frequent = chain(3, 1);
  world.put(low);
  world.put(high, {.priority = 90});
  world.put(frequent);
  (void)world.above().match_prefix(frequent);
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAre(first[0], high[0], frequent[0], low[0], low[1]));
}

TEST(OffloadRegistrationTest, ShedsTheLeastValuable) {
  World world({.offload = one_at_a_time(3)});
  const Keys first = chain(0, 1);
  world.put(first);
  world.settle();
  const Keys keys = chain(1, 3);
  world.put(keys);
  world.settle();
  const Keys high = chain(2, 2);
  world.put(high, {.priority = 90});
  world.settle();
  EXPECT_EQ(world.offloader->status().pending, 3U);
  EXPECT_EQ(world.refused(OffloadRefusal::kShed), 2U);
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAre(first[0], high[0], high[1], keys[0]));
  world.expect_accounts_add_up();
}

TEST(OffloadRegistrationTest, NotificationsThatWerePumpedLateAreBoundedToo) {
  World world({.offload = one_at_a_time(3)});
  const Keys keys = chain(1, 8);
  world.put(keys);
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAreArray(first_of(keys, 3)));
  EXPECT_EQ(world.refused(OffloadRefusal::kShed), 5U);
  EXPECT_EQ(world.offloader->status().offered, 8U);
}

TEST(OffloadRegistrationTest, WhatIsGoneBeforeItsTurnIsNotCopied) {
  World world({.offload = one_at_a_time()});
  const Keys keys = chain(1, 3);
  world.put(keys);
  world.settle();
  EXPECT_EQ(world.above().reset({{keys[1]}}).reset, 1U);
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAre(keys[0], keys[2]));
  EXPECT_EQ(world.refused(OffloadRefusal::kGone), 1U);
  // Evicted before the offloader looked at it.
  world.put(chain(2, 1));
  (void)world.above().reset(chain(2, 1));
  world.drain();
  EXPECT_EQ(world.refused(OffloadRefusal::kGone), 2U);
}

TEST(OffloadRegistrationTest, NothingBelowMakesRoomForWhatIsGone) {
  World world({.lower = 3, .offload = one_at_a_time()});
  const Keys keys = chain(1, 3);
  world.put(keys, {.priority = 90});
  world.settle();  // one is in flight
  world.put(chain(2, 1));
  world.settle();
  EXPECT_EQ(world.above().reset(chain(2, 1)).reset, 1U);
  world.drain();
  EXPECT_EQ(world.refused(OffloadRefusal::kGone), 1U);
  EXPECT_EQ(world.below().match_prefix(keys).size(), 3U);
}

TEST(OffloadRegistrationTest, ABlockThatWasRefusedWhenItWasNewIsOfferedWhenItIsUsedAgain) {
  OffloadOptions options = kWriteThrough;
  options.least_uses = 2;
  World world({.offload = options});
  const Keys keys = chain(1, 2);
  world.put(keys);
  world.drain();
  EXPECT_EQ(world.refused(OffloadRefusal::kNeverSeenTwice), 2U);
  (void)world.above().match_prefix(keys);
  world.drain();
  EXPECT_THAT(world.arrived(), UnorderedElementsAreArray(keys));
}

TEST(OffloadRegistrationTest, LengthIsThatOfTheSequenceAsItIsRegistered) {
  OffloadOptions options = kWriteThrough;
  options.least_blocks = 3;
  options.least_priority = 20;
  World world({.offload = options});
  world.put(chain(1, 2));
  world.put(chain(2, 3));
  world.put(chain(3, 3), {.priority = 19});
  world.drain();
  EXPECT_THAT(world.arrived(), UnorderedElementsAreArray(chain(2, 3)));
  EXPECT_EQ(world.refused(OffloadRefusal::kTooShort), 2U);
  EXPECT_EQ(world.refused(OffloadRefusal::kLowPriority), 3U);
}

TEST(OffloadRegistrationTest, LookingAtBlocksLeavesThemInTheirOrder) {
  OffloadOptions options = kWriteThrough;
  options.least_blocks = 9;
  World world({.upper = 4, .offload = options});
  const Keys keys = chain(1, 4);
  world.put(keys);
  world.drain();
  EXPECT_EQ(world.refused(OffloadRefusal::kTooShort), 4U);
  EXPECT_EQ(evicted_for(world.above(), 4), reversed(keys));
}

TEST(OffloadRegistrationTest, PassesOverWhatIsRegisteredWhilePaused) {
  World world({.offload = one_at_a_time()});
  const Keys before = chain(1, 3);
  world.put(before);
  world.settle();
  world.offloader->pause();
  world.put(chain(2, 3));
  world.run_for(milliseconds(20));
  EXPECT_THAT(world.arrived(), ElementsAre(before[0])) << "transfers in flight continue";
  EXPECT_EQ(world.offloader->status().pending, 2U);
  world.offloader->resume();
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAre(before[1], before[2]));
  EXPECT_EQ(world.offloader->status().offered, 3U);
}

TEST(OffloadRegistrationTest, TheEndDropsWhatWaits) {
  World world({.offload = one_at_a_time()});
  world.put(chain(1, 3));
  world.settle();
  world.put(chain(2, 1));
  world.offloader->end();
  world.put(chain(3, 1));
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 1U);
  EXPECT_EQ(world.refused(OffloadRefusal::kCancelled), 2U);
}

TEST(OffloadRegistrationTest, OffMeansOff) {
  World world({.low_water = 30, .offload = {.mode = OffloadMode::kOff}});
  world.put(chain(1, 20));
  world.drain();
  EXPECT_EQ(world.offloader->status().offered, 0U);
}

}  // namespace
}  // namespace cairn::testing
