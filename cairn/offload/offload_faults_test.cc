// Failures that an offloader survives: copies that fail or are late, suspended tiers, full tiers, wrong bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr OffloadOptions kOneAtATime{.mode = OffloadMode::kOff, .batch = 1, .in_flight = 1};

TEST(OffloadFaultsTest, FailedCopiesLeaveNothingBehind) {
  World world({.upper = 8,
               .low_water = 4,
               .faults = {.rules = {{.fault = Fault::kFail, .chance = 1}}},
               .health = {.failures = 1'000}});
  for (std::uint64_t name = 0; name < 100; ++name) {
    world.put(chain(name, 1));
    world.run_for(milliseconds(2));
  }
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 0U);
  EXPECT_EQ(world.refused(OffloadRefusal::kFailed), world.offloader->status().offered);
  EXPECT_GT(world.refused(OffloadRefusal::kFailed), 90U);
  EXPECT_EQ(world.below().counts(), (PoolCounts{.total = 256, .free = 256}));
  EXPECT_EQ(world.above().counts().active, 0U);
  EXPECT_GE(world.above().counts().ready + world.above().counts().free, 4U);
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
}

TEST(OffloadFaultsTest, ASuspendedTierIsCountedAndDelaysNoAllocation) {
  World world({.upper = 8,
               .low_water = 4,
               .faults = {.rules = {{.fault = Fault::kFail, .chance = 1}}},
               .health = {.failures = 2, .first_wait = seconds(100), .longest_wait = seconds(100)}});
  for (std::uint64_t name = 0; name < 100; ++name) {
    world.put(chain(name, 1));
    world.run_for(milliseconds(2));
  }
  EXPECT_FALSE(world.lower->is_up(TierUse::kWriting));
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  EXPECT_EQ(world.refused(OffloadRefusal::kFailed) + world.refused(OffloadRefusal::kTierOut),
            world.offloader->status().offered);
  EXPECT_GT(world.refused(OffloadRefusal::kTierOut), 80U);
  EXPECT_EQ(world.below().stats().evicted, 0U);
  EXPECT_TRUE(world.offloader->is_idle());
}

TEST(OffloadFaultsTest, ATierThatIsOutIsTriedAndComesBack) {
  World world({.offload = kOneAtATime,
               .faults = {.rules = {{.fault = Fault::kFail, .at = 1}, {.fault = Fault::kFail, .at = 2}}},
               .health = {.failures = 2, .first_wait = seconds(1)}});
  const Keys keys = chain(1, 5);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(false, false, false, false, false));
  EXPECT_THAT(outcome.error, HasSubstr("failed"));
  EXPECT_EQ(world.refused(OffloadRefusal::kFailed), 2U);
  EXPECT_EQ(world.refused(OffloadRefusal::kTierOut), 3U) << "nothing is retried forever";

  Outcome early;
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[0]}, .done = early.hear()}));
  world.drain();
  EXPECT_THAT(early.is_below, ElementsAre(false));
  EXPECT_THAT(early.error, HasSubstr("tier out"));

  world.clock.advance(seconds(1));
  Outcome back;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = back.hear()}));
  world.drain();
  EXPECT_THAT(back.is_below, ElementsAre(true, true, true, true, true));
  EXPECT_TRUE(world.lower->is_up(TierUse::kWriting));
  world.expect_accounts_add_up();
}

TEST(OffloadFaultsTest, WithoutRoomBelowVictimsAreReleased) {
  World world({.upper = 8, .lower = 4, .low_water = 4});
  const MutableBlocks in_use = *world.below().allocate(4);
  for (std::uint64_t name = 0; name < 50; ++name) {
    world.put(chain(name, 1));
    world.settle();
  }
  EXPECT_EQ(world.above().stats().allocation_failures, 0U);
  EXPECT_EQ(world.refused(OffloadRefusal::kNoRoom), world.offloader->status().offered);
  EXPECT_EQ(world.above().counts().active, 0U);
}

TEST(OffloadFaultsTest, WhereThereIsRoomForSomeTheFirstAreCopied) {
  World world({.upper = 64, .lower = 4, .low_water = 16});
  const MutableBlocks in_use = *world.below().allocate(1);
  Keys keys;
  for (std::uint64_t name = 0; name < 64; ++name) {
    keys.push_back(chain(name, 1)[0]);
    world.put({keys.back()});
  }
  (void)world.offloader->pump();  // half of them are needed
  EXPECT_EQ(world.above().counts().ready, 32U);
  EXPECT_EQ(world.offloader->status().in_flight, 3U);
  EXPECT_EQ(world.offloader->status().pending, 29U) << "until those have arrived";
  world.drain();
  const Keys arrived = world.arrived();
  ASSERT_GE(arrived.size(), 3U);
  EXPECT_THAT(first_of(arrived, 3), ElementsAre(keys[0], keys[1], keys[2]));
  EXPECT_EQ(world.below().counts().registered, 3U);
  world.expect_accounts_add_up();
}

TEST(OffloadFaultsTest, RequestsWaitForRoomOnlyWhileSomethingIsInFlight) {
  World world({.lower = 2, .offload = {.mode = OffloadMode::kOff, .batch = 4}});
  const Keys keys = chain(1, 4);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, true, true)) << "after the retry time";
  const MutableBlocks in_use = *world.below().allocate(2);
  Outcome none;
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[0]}, .done = none.hear()}));
  world.drain();
  EXPECT_THAT(none.is_below, ElementsAre(false));
  EXPECT_THAT(none.error, HasSubstr("no room"));
}

TEST(OffloadFaultsTest, BlocksOfALateCopyAreNotReusedUntilNothingReadsThem) {
  World world({.upper = 8,
               .low_water = 2,
               .offload = {.deadline = milliseconds(10)},
               .faults = {.rules = {{.fault = Fault::kHang, .at = 1}, {.fault = Fault::kHang, .at = 2}}}});
  Keys keys;
  for (std::uint64_t name = 0; name < 7; ++name) {
    keys.push_back(chain(name, 1)[0]);
    world.put({keys.back()});
  }
  world.run_for(milliseconds(5));
  EXPECT_EQ(world.offloader->status().in_flight, 1U) << "one at a time in so small a pool";
  for (int i = 0; i < 10; ++i) {
    world.run_for(milliseconds(3));
  }
  EXPECT_EQ(world.refused(OffloadRefusal::kFailed), 2U);
  EXPECT_EQ(world.below().counts().quarantined, 2U);
  world.drain();
  EXPECT_EQ(world.offloader->status().copied, 5U) << "late copies are not waited for";
  EXPECT_FALSE(world.above().allocate(7)) << "a late copy may still read two of them";
  EXPECT_EQ(evicted_for(world.above(), 6).size(), 5U);
  EXPECT_TRUE(world.above().contains(keys[0]));
  EXPECT_TRUE(world.above().contains(keys[1]));
  world.executor->release();
  world.run_for(milliseconds(5));
  EXPECT_EQ(world.above().counts().active, 0U);
  EXPECT_EQ(world.above().counts().borrowed, 0U);
  EXPECT_EQ(world.below().counts().quarantined, 0U);
  EXPECT_TRUE(world.above().allocate(8));
}

TEST(OffloadFaultsTest, AnExecutorThatStaysFullIsNotWaitedForForever) {
  World world({.upper = 8,
               .low_water = 2,
               .offload = {.batch = 1, .deadline = milliseconds(10)},
               .link = {.latency = milliseconds(1), .limit = 1},
               .faults = {.rules = {{.fault = Fault::kLose, .at = 1}}}});
  const Keys keys = chain(1, 3);
  const ImmutableBlocks in_use = world.fill(keys);
  Outcome lost;
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[0]}, .done = lost.hear()}));
  world.run_for(milliseconds(11));
  EXPECT_THAT(lost.is_below, ElementsAre(false));
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[1], keys[2]}, .done = outcome.hear()}));
  world.put(chain(2, 4));
  world.run_for(milliseconds(9));
  EXPECT_EQ(outcome.times, 0);
  EXPECT_EQ(world.offloader->status().pending, 6U) << "two requested ones, and four that were registered";
  world.run_for(milliseconds(2));
  EXPECT_THAT(outcome.is_below, ElementsAre(false, false));
  EXPECT_THAT(outcome.error, HasSubstr("accepts no transfers"));
  EXPECT_GE(world.refused(OffloadRefusal::kTierOut), 6U);
  world.drain();  // dropped blocks are not looked up again and again
  world.expect_accounts_add_up();
}

TEST(OffloadFaultsTest, BlocksWithWrongBytesAreNotCopiedAndDroppedAbove) {
  World world({.offload = kOneAtATime});
  const Keys keys = chain(1, 2);
  const std::vector<BlockFacts> facts{{.block = {.key = keys[0]}, .checksum = 123}, {.block = {.key = keys[1]}}};
  (void)*(*(*world.above().allocate(2)).complete_as(facts)).register_blocks();
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(false, true));
  EXPECT_THAT(outcome.error, HasSubstr("other bytes"));
  EXPECT_FALSE(world.above().contains(keys[0]));
}

}  // namespace
}  // namespace cairn::testing
