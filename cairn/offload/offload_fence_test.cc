// Fences: blocks that an offloader had pending before one are not copied, and do not hold up later ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr OffloadOptions kOneAtATime{.mode = OffloadMode::kOff, .batch = 1, .in_flight = 1};

// As a manager does it.
void fence(World& world, std::uint64_t fences = 1) {
  std::vector<std::optional<PoolFence>> plans;
  for (Tier* tier : {world.upper.get(), world.lower.get()}) {
    plans.push_back(std::move(*tier->plan_fence()));
  }
  world.upper->raise_fence(std::move(plans[0]));
  world.lower->raise_fence(std::move(plans[1]));
  for (Tier* tier : {world.upper.get(), world.lower.get()}) {
    ASSERT_TRUE(tier->settle_fence(std::nullopt));
  }
  world.offloader->fence(fences);
  world.upper->lower_fence();
  world.lower->lower_fence();
}

TEST(OffloadFenceTest, RequestsAreAnsweredAndNotCopied) {
  World world({.offload = kOneAtATime});
  const Keys keys = chain(1, 3);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.settle();
  EXPECT_EQ(world.offloader->status().in_flight, 1U);
  fence(world);
  EXPECT_EQ(world.offloader->status().in_flight + world.offloader->status().pending, 0U);
  world.expect_accounts_add_up();
  world.settle();
  EXPECT_EQ(outcome.times, 1) << "at once, whatever the copy does";
  EXPECT_THAT(outcome.is_below, Each(false));
  EXPECT_THAT(outcome.error, HasSubstr("the cache was reset"));
  world.drain();
  EXPECT_THAT(world.arrived(), IsEmpty());
  EXPECT_EQ(world.refused(OffloadRefusal::kCancelled), 3U);
  EXPECT_EQ(world.below().counts().free, world.below().capacity());
  world.expect_accounts_add_up();
}

TEST(OffloadFenceTest, TheSameKeyIsCopiedAnewBesideTheOldCopy) {
  World world({.offload = {.mode = OffloadMode::kOnRegistration}});
  const Keys keys = chain(1, 3);
  world.put(keys);
  world.settle();
  EXPECT_EQ(world.offloader->status().in_flight, 3U);
  fence(world);
  world.put(keys);
  world.drain();
  for (const BlockKey& key : keys) {
    EXPECT_TRUE(world.is_whole_below(key));
  }
  EXPECT_EQ(world.offloader->status().copied, 3U);
  world.expect_accounts_add_up();
}

TEST(OffloadFenceTest, VictimsThatAreClaimedAreGivenBackAndNotCopied) {
  World world({.upper = 8, .low_water = 4, .offload = {.mode = OffloadMode::kAhead, .batch = 2, .in_flight = 1}});
  world.put(chain(1, 8));
  world.settle();
  EXPECT_GT(world.offloader->status().pending + world.offloader->status().in_flight, 2U)
      << "one batch is in flight, one waits";
  fence(world);
  world.drain();
  EXPECT_EQ(world.below().counts().registered, 0U);
  EXPECT_EQ(world.above().counts().free, 8U);
  world.put(chain(2, 8));
  world.drain();
  EXPECT_GT(world.below().counts().registered, 0U) << "later blocks are copied";
  world.expect_accounts_add_up();
}

TEST(OffloadFenceTest, TheEnginesBlocksOfBeforeAreRefused) {
  World world({.has_upper_pool = false, .offload = kOneAtATime});
  const Keys keys = chain(1, 2);
  const auto blocks = [&] {
    EngineBlocks made{.block_ids = {BlockId{0}, BlockId{1}}};
    for (const BlockKey& key : keys) {
      made.facts.push_back({.block = {.key = key}});
    }
    return made;
  };
  Outcome waits;
  ASSERT_TRUE(world.offloader->offload(blocks(), {.keys = keys, .done = waits.hear()}));
  fence(world, 3);
  world.drain();
  EXPECT_THAT(waits.is_below, Each(false));
  EngineBlocks old = blocks();
  old.fence = 2;
  const auto refused = world.offloader->offload(std::move(old), {.keys = keys});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(world.below().counts().registered, 0U);
  EngineBlocks late = blocks();
  late.fence = 3;
  ASSERT_TRUE(world.offloader->offload(std::move(late), {.keys = keys}));
  world.drain();
  EXPECT_EQ(world.below().counts().registered, 2U);
  world.expect_accounts_add_up();
}

}  // namespace
}  // namespace cairn::testing
