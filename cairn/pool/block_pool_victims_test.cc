// Blocks that are copied ahead of their eviction: claimed, ready, borrowed.
#include <chrono>
#include <random>
#include <string>

#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

BlockPoolOptions with_low_water(std::uint32_t low_water, BlockPoolOptions options = {}) {
  options.low_water = low_water;
  return options;
}

BlockPoolOptions lru(std::uint32_t low_water) { return with_low_water(low_water, {.policy = PolicyKind::kLru}); }

// Claims the next `count` victims and makes them ready; returns their keys.
Keys make_ready(BlockPool& pool, std::uint32_t count) {
  ImmutableBlocks claimed = pool.claim_victims(count);
  const Keys keys = keys_of(claimed);
  std::move(claimed).release_as_victims();
  return keys;
}

class EveryPolicyTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  // Full of blocks that were used once or more often.
  static std::unique_ptr<BlockPool> used_pool(PolicyKind policy) {
    auto pool = make_pool(64, with_low_water(8, {.policy = policy}));
    std::mt19937 random(7);
    for (int i = 0; i < 300; ++i) {
      const Keys keys = chain(random() % 40, 1 + random() % 5);
      const ImmutableBlocks found = pool->match_prefix(keys);
      if (found.size() < keys.size()) {
        cache(*pool, Keys(keys.begin() + found.size(), keys.end()));
      }
    }
    (void)evicted_for(*pool, 0);
    return pool;
  }
};

TEST_P(EveryPolicyTest, ClaimsWhatWouldBeEvictedNext) {
  const auto pool = used_pool(GetParam());
  const auto twin = used_pool(GetParam());
  const Keys evicted = evicted_for(*twin, twin->counts().free + 20);
  const ImmutableBlocks claimed = pool->claim_victims(20);
  EXPECT_EQ(keys_of(claimed), evicted);
  pool->check_invariants();
}

TEST_P(EveryPolicyTest, ReadyBlocksGoInTheirOrderAndThenThePolicysNext) {
  const auto pool = used_pool(GetParam());
  const auto twin = used_pool(GetParam());
  Keys ready = make_ready(*pool, 5);
  ready = joined(ready, make_ready(*pool, 7));
  EXPECT_EQ(pool->counts().ready, 12U);
  pool->check_invariants();
  const std::uint32_t free = pool->counts().free;
  const Keys evicted = evicted_for(*pool, free + 20);
  EXPECT_EQ(first_of(evicted, 12), ready);
  EXPECT_EQ(evicted, evicted_for(*twin, free + 20)) << "as if nothing had been claimed";
  EXPECT_EQ(pool->counts().ready, 0U);
  pool->check_invariants();
}

TEST_P(EveryPolicyTest, EveryBlockCanBeClaimedAndGivenBackInAnyWay) {
  const auto pool = used_pool(GetParam());
  const std::uint32_t inactive = pool->counts().inactive;
  for (int i = 0; i < 3; ++i) {
    const ImmutableBlocks dropped = pool->claim_victims(100);
    EXPECT_EQ(dropped.size(), inactive);
    EXPECT_THAT(keys_of(pool->claim_victims(1)), IsEmpty());
  }
  EXPECT_EQ(make_ready(*pool, 100).size(), inactive);
  pool->check_invariants();
  const Keys all = resident_keys(*pool);
  (void)pool->scan(all);  // all of them are ordinary blocks again
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(pool->counts().inactive, inactive);
  pool->check_invariants();
  EXPECT_EQ(evicted_for(*pool, 64).size(), inactive);
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicyTest, ::testing::ValuesIn(kAllPolicies), [](const auto& test) {
  std::string name(to_string(test.param));
  std::erase(name, '-');
  return name;
});

TEST(BlockPoolVictimsTest, AClaimIsNoLookupNoUseAndNoEviction) {
  RecordingObserver observer;
  const auto pool = make_pool(4, with_low_water(1, {.policy = PolicyKind::kLru, .observers = {&observer}}));
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  (void)observer.take();
  const PoolStats before = pool->stats();
  const ImmutableBlocks claimed = pool->claim_victims(2);
  EXPECT_THAT(keys_of(claimed), ElementsAre(keys[3], keys[2]));
  const PoolCounts counts = pool->counts();
  EXPECT_EQ(counts.active, 2U);
  EXPECT_EQ(counts.inactive, 2U);
  EXPECT_EQ(counts.registered, 4U);
  const PoolStats after = pool->stats();
  EXPECT_EQ(after.lookups, before.lookups);
  EXPECT_EQ(after.hits, before.hits);
  EXPECT_EQ(after.evicted, before.evicted);
  EXPECT_THAT(observer.take(), IsEmpty());
  EXPECT_EQ(pool->match_prefix(keys).size(), 4U) << "claimed blocks can be matched";
}

TEST(BlockPoolVictimsTest, EvictionOfReadyBlocksIsReported) {
  RecordingObserver observer;
  const auto pool = make_pool(4, with_low_water(1, {.policy = PolicyKind::kLru, .observers = {&observer}}));
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  EXPECT_THAT(make_ready(*pool, 2), ElementsAre(keys[3], keys[2]));
  (void)observer.take();
  EXPECT_THAT(evicted_for(*pool, 1), ElementsAre(keys[3]));
  EXPECT_THAT(observer.take(), ElementsAre(removed({keys[3]})));
  EXPECT_EQ(pool->stats().evicted, 1U);
  EXPECT_FALSE(pool->contains(keys[3]));
  EXPECT_TRUE(pool->contains(keys[2]));
  EXPECT_THAT(evicted_for(*pool, 1), IsEmpty()) << "free blocks are used before ready ones";
  EXPECT_EQ(pool->counts().ready, 1U);
}

TEST(BlockPoolVictimsTest, AMatchedReadyBlockIsAsAnyOtherAgain) {
  const auto pool = make_pool(3, lru(1));
  const Keys keys = joined(joined(chain(1, 1), chain(2, 1)), chain(3, 1));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  EXPECT_EQ(make_ready(*pool, 2), first_of(keys, 2));
  {
    const ImmutableBlocks used = pool->match_prefix({&keys[0], 1});
    EXPECT_EQ(pool->counts().ready, 1U);
    EXPECT_EQ(pool->counts().active, 1U);
  }
  EXPECT_EQ(pool->counts().ready, 1U);
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAre(keys[1], keys[2], keys[0]));
}

TEST(BlockPoolVictimsTest, ALateCopyOfAReadyBlockUsesIt) {
  const auto pool = make_pool(3, lru(1));
  const Keys keys = chain(1, 1);
  cache(*pool, keys);
  EXPECT_EQ(make_ready(*pool, 1), keys);
  cache(*pool, keys);
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(pool->stats().deduplicated, 1U);
  pool->check_invariants();
}

TEST(BlockPoolVictimsTest, BlocksThatOthersHoldAreOnlyReleased) {
  const auto pool = make_pool(2, lru(1));
  const Keys keys = chain(1, 2);
  cache(*pool, keys);
  ImmutableBlocks claimed = pool->claim_victims(2);
  ImmutableBlocks used = pool->match_prefix(first_of(keys, 1));
  std::move(claimed).release_as_victims();
  EXPECT_EQ(pool->counts().ready, 1U);
  EXPECT_EQ(pool->counts().active, 1U);
  used = {};
  EXPECT_EQ(pool->counts().ready, 1U);
  EXPECT_EQ(pool->counts().inactive, 2U);
}

TEST(BlockPoolVictimsTest, ReleaseAsVictimsFreesWhatIsToBeReset) {
  const auto pool = make_pool(2, lru(1));
  cache(*pool, chain(1, 2));
  ImmutableBlocks claimed = pool->claim_victims(1);
  claimed.reset_on_release(true);
  std::move(claimed).release_as_victims();
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(pool->counts().free, 1U);
}

TEST(BlockPoolVictimsTest, MayEvictIsCalledForClaimsAndForReadyBlocks) {
  BlockKey refused = chain(1, 1)[0];
  const auto pool =
      make_pool(3, with_low_water(1, {.policy = PolicyKind::kLru,
                                      .may_evict = [&](BlockId, const BlockKey& key) { return key != refused; }}));
  const Keys keys = joined(joined(chain(1, 1), chain(2, 1)), chain(3, 1));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  EXPECT_THAT(make_ready(*pool, 3), ElementsAre(keys[1], keys[2]));
  refused = keys[1];
  EXPECT_THAT(evicted_for(*pool, 2), ElementsAre(keys[2], keys[0]));
  EXPECT_TRUE(pool->contains(keys[1]));
  EXPECT_EQ(pool->counts().ready, 1U) << "it keeps its place";
  refused = keys[0];
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAre(keys[1]));
}

TEST(BlockPoolVictimsTest, WithoutLowWaterThereIsNothingToClaim) {
  const auto pool = make_pool(2, {.policy = PolicyKind::kLru});
  const Keys keys = chain(1, 2);
  cache(*pool, keys);
  EXPECT_THAT(keys_of(pool->claim_victims(2)), IsEmpty());
  EXPECT_EQ(pool->wanted_victims(), 0U);
  pool->match_prefix(keys).release_as_victims();
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(evicted_for(*pool, 2), reversed(keys));
}

TEST(BlockPoolVictimsTest, LowWaterIsAtMostTheCapacity) {
  const Result<std::unique_ptr<BlockPool>> pool = BlockPool::create({.capacity = 4, .block_size = 1, .low_water = 5});
  ASSERT_FALSE(pool.has_value());
  expect_error(pool.error(), ErrorCode::kInvalidArgument, "low_water is 5");
}

TEST(BlockPoolVictimsTest, ReadyBlocksCostTwelveBytesABlockWhereThereIsLowWater) {
  const std::size_t without = make_pool(1 << 20)->bytes();
  const std::size_t with = make_pool(1 << 20, with_low_water(1))->bytes();
  EXPECT_GT(with, without);
  EXPECT_LE(with - without, (std::size_t{12} << 20) + 8192);
}

TEST(BlockPoolVictimsTest, WhenLowIsCalledWhileThePolicyHasMoreToGive) {
  int calls = 0;
  const auto pool = make_pool(8, with_low_water(3, {.policy = PolicyKind::kLru, .when_low = [&] { ++calls; }}));
  cache(*pool, chain(1, 4));
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(pool->wanted_victims(), 0U) << "four are free";
  const MutableBlocks one = *pool->allocate(1);
  EXPECT_EQ(calls, 0) << "three are free";
  EXPECT_EQ(pool->wanted_victims(), 0U);
  const MutableBlocks another = *pool->allocate(1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(pool->wanted_victims(), 4U) << "six less the two that are free, and the policy has four";
  const ImmutableBlocks claimed = pool->claim_victims(2);
  EXPECT_EQ(pool->wanted_victims(), 2U) << "all that the policy still has";
  (void)*pool->allocate(0);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(make_ready(*pool, 1).size(), 1U);
  (void)*pool->allocate(0);
  EXPECT_EQ(calls, 2) << "two free and one ready";
  const ImmutableBlocks rest = pool->claim_victims(9);
  const MutableBlocks last = *pool->allocate(2);
  EXPECT_EQ(calls, 2) << "the policy has nothing to give";
  EXPECT_EQ(pool->wanted_victims(), 0U);
}

TEST(BlockPoolVictimsTest, HoldPinsResidentBlocksWithoutUsingThem) {
  RecordingObserver observer;
  const auto pool = make_pool(4, with_low_water(1, {.policy = PolicyKind::kLru, .observers = {&observer}}));
  const Keys keys = chain(1, 4);
  const ImmutableBlocks in_use = store(*pool, first_of(keys, 1));
  cache(*pool, {keys[1], keys[2]});
  (void)observer.take();
  const PoolStats before = pool->stats();
  {
    const Keys asked{keys[3], keys[2], keys[0]};
    const PinnedBlocks held = pool->hold(asked);
    EXPECT_THAT(keys_of(held), ElementsAre(keys[2], keys[0]));
    EXPECT_EQ(pool->counts().pinned, 2U);
    EXPECT_EQ(pool->counts().inactive, 1U);
    EXPECT_EQ(pool->reset(asked).in_use, 2U);
  }
  EXPECT_EQ(pool->counts().pinned, 0U);
  EXPECT_EQ(pool->counts().inactive, 2U);
  const PoolStats after = pool->stats();
  EXPECT_EQ(after.lookups, before.lookups);
  EXPECT_EQ(after.hits, before.hits);
  EXPECT_THAT(observer.take(), IsEmpty());
  EXPECT_EQ(pool->hold({}).size(), 0U);
}

TEST(BlockPoolVictimsTest, AHeldReadyBlockIsTheLastOfThemAfterwards) {
  const auto pool = make_pool(3, lru(1));
  const Keys keys = joined(joined(chain(1, 1), chain(2, 1)), chain(3, 1));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  EXPECT_EQ(make_ready(*pool, 3), keys);
  {
    const PinnedBlocks held = pool->hold({keys.data(), 2});
    EXPECT_EQ(pool->counts().ready, 1U);
    const PinnedBlocks again = pool->hold({keys.data(), 1});
    pool->check_invariants();
  }
  EXPECT_EQ(pool->counts().ready, 3U);
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAre(keys[2], keys[1], keys[0]));
}

TEST(BlockPoolVictimsTest, AHeldReadyBlockThatIsUsedMeanwhileIsAsAnyOther) {
  const auto pool = make_pool(3, lru(1));
  const Keys keys = joined(chain(1, 1), chain(2, 1));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  EXPECT_EQ(make_ready(*pool, 2), keys);
  {
    const PinnedBlocks held = pool->hold(keys);
    (void)pool->match_prefix({keys.data(), 1});
    cache(*pool, {keys[1]});  // a late copy
  }
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(pool->counts().inactive, 2U);
  pool->check_invariants();
}

TEST(BlockPoolVictimsTest, ALoadPinsAPrefixAndIsAUseOfIt) {
  RecordingObserver observer;
  const auto pool = make_pool(8, with_low_water(1, {.policy = PolicyKind::kLru, .observers = {&observer}}));
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  (void)pool->reset({&keys[2], 1});
  (void)observer.take();
  const PoolStats before = pool->stats();
  {
    const PinnedBlocks pinned = pool->pin_prefix(keys, BlockPool::LoadUse::kCounts);
    EXPECT_THAT(keys_of(pinned), ElementsAre(keys[0], keys[1])) << "keys[2] is a miss";
    EXPECT_EQ(pool->counts().pinned, 2U);
    EXPECT_THAT(observer.take(), ElementsAre(loaded(first_of(keys, 2))));
    const PinnedBlocks again = pool->pin_prefix(first_of(keys, 1), BlockPool::LoadUse::kCounts);
    EXPECT_THAT(observer.take(), ElementsAre(loaded(first_of(keys, 1)))) << "once for each load";
    const PinnedBlocks uncounted = pool->pin_prefix(keys, BlockPool::LoadUse::kDoesNotCount);
    EXPECT_EQ(uncounted.size(), 2U);
    EXPECT_THAT(observer.take(), IsEmpty());
  }
  EXPECT_EQ(pool->counts().pinned, 0U);
  EXPECT_EQ(pool->stats().lookups, before.lookups);
  EXPECT_EQ(pool->pin_prefix({&keys[2], 1}, BlockPool::LoadUse::kCounts).size(), 0U);
  EXPECT_THAT(observer.take(), IsEmpty());
  pool->check_invariants();
}

TEST(BlockPoolVictimsTest, ALoadedReadyBlockIsNotReadyAnyMore) {
  const auto pool = make_pool(3, lru(1));
  const Keys keys = joined(joined(chain(1, 1), chain(2, 1)), chain(3, 1));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  EXPECT_EQ(make_ready(*pool, 2), first_of(keys, 2));
  (void)pool->pin_prefix({keys.data(), 1}, BlockPool::LoadUse::kCounts);
  EXPECT_EQ(pool->counts().ready, 1U);
  (void)pool->pin_prefix({&keys[1], 1}, BlockPool::LoadUse::kDoesNotCount);
  EXPECT_EQ(pool->counts().ready, 1U);
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAre(keys[1], keys[2], keys[0])) << "the loaded block was used last";
}

// Blocks that loads keep in use all the time are worth as much as blocks that become inactive in between.
TEST(BlockPoolVictimsTest, EachOfOverlappingLoadsIsAUseForThePolicy) {
  const auto pool = make_pool(3, {.policy = PolicyKind::kLfu});
  const Keys keys = joined(joined(chain(1, 1), chain(2, 1)), chain(3, 1));
  for (const BlockKey& key : keys) {
    cache(*pool, {key});
  }
  {
    std::vector<PinnedBlocks> loads;
    for (int i = 0; i < 5; ++i) {
      loads.push_back(pool->pin_prefix({keys.data(), 1}, BlockPool::LoadUse::kCounts));
    }
  }
  for (int i = 0; i < 2; ++i) {
    (void)pool->match_prefix({&keys[1], 1});
  }
  (void)pool->match_prefix({&keys[2], 1});
  EXPECT_THAT(evicted_for(*pool, 3), ElementsAre(keys[2], keys[1], keys[0]));
}

TEST(BlockPoolVictimsTest, ReadyBlocksAreResetAsOthersAre) {
  RecordingObserver observer;
  const auto pool = make_pool(4, with_low_water(1, {.policy = PolicyKind::kLru, .observers = {&observer}}));
  const Keys keys = chain(1, 4);
  cache(*pool, keys);
  EXPECT_EQ(make_ready(*pool, 2).size(), 2U);
  EXPECT_EQ(pool->reset({&keys[3], 1}).reset, 1U);
  EXPECT_EQ(pool->counts().ready, 1U);
  (void)observer.take();
  EXPECT_EQ(pool->reset_inactive(), 3U);
  EXPECT_THAT(observer.take(), ElementsAre(cleared()));
  EXPECT_EQ(pool->counts().free, 4U);
  EXPECT_EQ(pool->counts().ready, 0U);
  pool->check_invariants();
}

TEST(BlockPoolVictimsTest, ReadyBlocksExpireAndLoseTheirPriority) {
  ManualClock clock;
  const auto pool =
      make_pool(4, with_low_water(1, {.policy = PolicyKind::kLru, .time_to_live = true, .clock = &clock}));
  const Keys mortal = chain(1, 1);
  const Keys important = chain(2, 1);
  const Keys plain = chain(3, 1);
  cache(*pool, mortal, {.time_to_live = milliseconds(10)});
  cache(*pool, important, {.priority = 80, .priority_duration = milliseconds(5)});
  EXPECT_EQ(make_ready(*pool, 2), joined(mortal, important));
  clock.advance(milliseconds(10));
  EXPECT_FALSE(pool->contains(mortal[0]));
  EXPECT_EQ(pool->counts().ready, 1U);
  EXPECT_EQ(pool->stats().expired, 1U);
  (void)pool->match_prefix(important);
  cache(*pool, plain);
  EXPECT_EQ(pool->counts().ready, 0U);
  EXPECT_EQ(evicted_for(*pool, 4), joined(important, plain)) << "the priority ended while it was ready";
}

TEST(BlockPoolVictimsTest, HintsOfReadyBlocksHoldWhenTheyAreUsedAgain) {
  ManualClock clock;
  const auto pool = make_pool(4, with_low_water(1, {.policy = PolicyKind::kLru, .hints = true, .clock = &clock}));
  const Keys unwanted = chain(1, 1);
  const Keys other = chain(2, 1);
  cache(*pool, unwanted);
  EXPECT_EQ(make_ready(*pool, 1), unwanted);
  EXPECT_EQ(*pool->hint(unwanted, {.kind = RetentionHint::Kind::kWillNotReturn}), 1U);
  pool->check_invariants();
  cache(*pool, other);
  {
    const PinnedBlocks held = pool->hold(unwanted);
  }
  EXPECT_EQ(evicted_for(*pool, 4), joined(unwanted, other));
}

class VictimTenantsTest : public ::testing::Test {
 protected:
  static constexpr TenantId kA{0};
  static constexpr TenantId kB{1};
  std::unique_ptr<BlockPool> pool_ = make_pool(
      10, with_low_water(2, {.policy = PolicyKind::kLru, .tenants = {{.name = "a", .reserved = 2}, {.name = "b"}}}));
};

TEST_F(VictimTenantsTest, TheOneFurthestBeyondItsReservationGives) {
  const Keys a = chain(1, 4);  // two beyond the reservation
  const Keys b = chain(2, 4);  // four beyond the reservation
  cache(*pool_, a, {}, kA);
  cache(*pool_, b, {}, kB);
  const ImmutableBlocks claimed = pool_->claim_victims(4);
  EXPECT_THAT(keys_of(claimed), ElementsAre(b[3], b[2], a[3], b[1]));
  EXPECT_EQ(pool_->usage(kB)->used, 4U) << "a claimed block is still charged";
  EXPECT_EQ(pool_->usage(kB)->inactive, 1U);
}

TEST_F(VictimTenantsTest, ThoseWithinTheirReservationGiveLast) {
  const Keys a = chain(1, 2);
  const Keys b = chain(2, 2);
  cache(*pool_, a, {}, kA);
  cache(*pool_, b, {}, kB);
  EXPECT_THAT(keys_of(pool_->claim_victims(9)), ElementsAre(b[1], b[0], a[1], a[0]));
}

TEST_F(VictimTenantsTest, AVictimGivesItsOwnReadyBlocksFirst) {
  const Keys a = chain(1, 4);
  const Keys b = chain(2, 6);
  cache(*pool_, a, {}, kA);
  cache(*pool_, b, {}, kB);
  pool_->match_prefix({&a[0], 1}).release_as_victims();
  pool_->match_prefix({&b[0], 1}).release_as_victims();
  EXPECT_EQ(pool_->usage(kB)->inactive, 6U) << "a ready block is evictable";
  EXPECT_EQ(pool_->counts().ready, 2U);
  pool_->check_invariants();
  EXPECT_THAT(evicted_for(*pool_, 3, kA), ElementsAre(b[0], b[5], a[0]))
      << "then both are four beyond their reservation";
  EXPECT_EQ(pool_->counts().ready, 0U);
  pool_->check_invariants();
}

// A ready block still waits for the blocks below it.
class VictimLeavesTest : public ::testing::TestWithParam<PolicyKind> {
 protected:
  std::unique_ptr<BlockPool> pool_ = make_pool(4, with_low_water(1, {.policy = GetParam(), .leaves_first = true}));
  Keys keys_ = chain(1, 4);
};

TEST_P(VictimLeavesTest, AParentDoesNotGoBeforeAChildThatWasUsedAgain) {
  cache(*pool_, keys_);
  EXPECT_EQ(make_ready(*pool_, 4), reversed(keys_));
  (void)pool_->scan({&keys_[3], 1});
  EXPECT_EQ(pool_->counts().ready, 3U);
  EXPECT_EQ(evicted_for(*pool_, 2), (Keys{keys_[3], keys_[2]}));
  pool_->check_invariants();
}

TEST_P(VictimLeavesTest, AParentDoesNotGoBeforeAChildThatBecameReadyLater) {
  cache(*pool_, keys_);
  EXPECT_EQ(make_ready(*pool_, 4), reversed(keys_));
  {
    const PinnedBlocks held = pool_->hold({&keys_[3], 1});
  }
  EXPECT_EQ(evicted_for(*pool_, 2), (Keys{keys_[3], keys_[2]}));
  pool_->check_invariants();
}

TEST_P(VictimLeavesTest, AParentThatIsGoneHoldsNoChildBack) {
  cache(*pool_, keys_);
  EXPECT_EQ(make_ready(*pool_, 2), (Keys{keys_[3], keys_[2]}));
  EXPECT_EQ(pool_->reset({&keys_[2], 1}).reset, 1U);
  pool_->check_invariants();
  cache(*pool_, {keys_[2]});
  EXPECT_EQ(pool_->reset({&keys_[3], 1}).reset, 1U);
  pool_->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Policies, VictimLeavesTest, ::testing::ValuesIn(kAllPolicies), [](const auto& test) {
  std::string name(to_string(test.param));
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace cairn::testing
