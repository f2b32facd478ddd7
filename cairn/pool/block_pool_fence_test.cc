// Fences: what was registered or allocated before one is never found after it.
#include "cairn/base/clock.h"
#include "cairn/pool/pool_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

PoolFenceOutcome fence(BlockPool& pool) {
  const PoolFenceOutcome outcome = pool.raise_fence(*pool.plan_fence());
  pool.lower_fence();
  return outcome;
}

class BlockPoolFenceTest : public ::testing::Test {
 protected:
  std::unique_ptr<BlockPool> make(BlockPoolOptions options = {}, std::uint32_t capacity = 8) {
    options.observers = {&observer_};
    return make_pool(capacity, options);
  }

  RecordingObserver observer_;
  Keys keys_ = chain(1, 4);
};

TEST_F(BlockPoolFenceTest, NothingOfBeforeIsFound) {
  const auto pool = make();
  cache(*pool, keys_);
  ImmutableBlocks held = store(*pool, chain(2, 2));
  (void)observer_.take();
  const PoolFenceOutcome outcome = fence(*pool);
  EXPECT_EQ(outcome.dropped, 4U);
  EXPECT_EQ(outcome.in_use, 2U);
  EXPECT_THAT(observer_.take(), ElementsAre(cleared()));
  pool->check_invariants();
  EXPECT_TRUE(pool->match_prefix(keys_).empty());
  EXPECT_TRUE(pool->scan(chain(2, 2)).empty());
  EXPECT_EQ(pool->hold(keys_).size(), 0U);
  EXPECT_FALSE(pool->contains(keys_[0]));
  EXPECT_THAT(resident_keys(*pool), IsEmpty());
  EXPECT_FALSE(held.is_current());
  EXPECT_FALSE(held.downgrade().upgrade().has_value());
  PoolCounts counts = pool->counts();
  EXPECT_EQ(counts.free, 6U);
  EXPECT_EQ(counts.active, 2U);
  EXPECT_EQ(counts.inactive, 0U);
  EXPECT_EQ(counts.registered, 0U);
  EXPECT_EQ(keys_of(held), chain(2, 2)) << "it is unchanged for its holder";
  held = {};
  counts = pool->counts();
  EXPECT_EQ(counts.free, 8U) << "free, not evictable";
  EXPECT_THAT(observer_.take(), IsEmpty());
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, BlocksAllocatedBeforeAreRegisteredForTheirHolderAlone) {
  const auto pool = make();
  MutableBlocks before = *pool->allocate(2);
  CompleteBlocks named = completed(*pool, chain(2, 2));
  EXPECT_TRUE(before.is_current());
  fence(*pool);
  EXPECT_FALSE(before.is_current());
  ImmutableBlocks registered = *(*std::move(before).complete({.keys = first_of(keys_, 2)})).register_blocks();
  const ImmutableBlocks others = *std::move(named).register_blocks();
  EXPECT_EQ(keys_of(registered), first_of(keys_, 2));
  EXPECT_FALSE(registered.is_current());
  EXPECT_FALSE(pool->contains(keys_[0]));
  EXPECT_FALSE(pool->contains(chain(2, 1)[0]));
  EXPECT_THAT(observer_.take(), IsEmpty());
  pool->check_invariants();
  // After the fence the same key is another block.
  const ImmutableBlocks after = store(*pool, first_of(keys_, 2));
  EXPECT_TRUE(after.is_current());
  EXPECT_EQ(pool->match_prefix(keys_).block_ids()[0], after.block_ids()[0]);
  registered = {};
  EXPECT_EQ(pool->count_prefix(keys_), 2U);
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, WhileItIsUpNothingIsRegisteredForOthers) {
  const auto pool = make();
  pool->raise_fence(*pool->plan_fence());
  MutableBlocks between = *pool->allocate(1);
  EXPECT_FALSE(between.is_current());
  const ImmutableBlocks at_once = store(*pool, first_of(keys_, 1));
  EXPECT_FALSE(pool->contains(keys_[0]));
  pool->lower_fence();
  EXPECT_FALSE(between.is_current()) << "it was taken before the fence";
  const ImmutableBlocks later = *(*std::move(between).complete({.keys = first_of(keys_, 1)})).register_blocks();
  EXPECT_FALSE(pool->contains(keys_[0]));
  const ImmutableBlocks after = store(*pool, first_of(keys_, 1));
  EXPECT_TRUE(pool->contains(keys_[0]));
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, BlocksAreReclaimedFirstByAllocationsThatNeedThem) {
  const auto pool = make({}, 1000);
  cache(*pool, chain(1, 1000));
  fence(*pool);
  EXPECT_EQ(pool->counts().free, 1000U);
  const ImmutableBlocks some = store(*pool, chain(2, 10));
  pool->check_invariants();
  cache(*pool, chain(3, 500));
  EXPECT_EQ(pool->stats().evicted, 0U);
  const Keys all = chain(4, 490);
  cache(*pool, all);
  EXPECT_EQ(pool->stats().evicted, 0U) << "blocks that cannot be found are evicted first";
  EXPECT_EQ(pool->counts().free, 0U);
  EXPECT_EQ(pool->counts().registered, 1000U);
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, ReclaimingTakesBoundedSteps) {
  const auto pool = make({}, 1000);
  cache(*pool, chain(1, 900));
  const ImmutableBlocks held = store(*pool, chain(2, 50));
  EXPECT_FALSE(pool->reclaim(100)) << "there is nothing to reclaim";
  fence(*pool);
  std::uint32_t steps = 1;
  while (pool->reclaim(100)) {
    pool->check_invariants();
    ++steps;
  }
  EXPECT_EQ(steps, 10U);
  EXPECT_EQ(pool->counts().free, 950U);
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, ManyFencesDoNotBringAnythingBack) {
  for (const bool reclaims : {false, true}) {
    const auto pool = make({}, 16);
    ImmutableBlocks held = store(*pool, chain(1, 2));
    cache(*pool, chain(2, 2));
    for (std::uint32_t i = 0; i < 600; ++i) {
      fence(*pool);
      cache(*pool, chain(10 + i, 1));
      if (reclaims) {
        (void)pool->reclaim(3);
      }
      ASSERT_EQ(pool->counts().registered, 1U);
      ASSERT_FALSE(held.is_current()) << i;
      ASSERT_EQ(resident_keys(*pool), chain(10 + i, 1));
      pool->check_invariants();
    }
    held = {};
    EXPECT_EQ(pool->counts().free, 15U);
    pool->check_invariants();
  }
}

TEST_F(BlockPoolFenceTest, DuplicatesPinsVictimsAndTimesAreLeftBehind) {
  ManualClock clock;
  const auto pool = make({.leaves_first = true,
                          .duplicates = Duplicates::kAllow,
                          .time_to_live = true,
                          .hints = true,
                          .clock = &clock,
                          .low_water = 2});
  cache(*pool, keys_, {.time_to_live = std::chrono::seconds(1)});
  ImmutableBlocks first = store(*pool, chain(2, 1));
  ImmutableBlocks second = store(*pool, chain(2, 1));
  ImmutableBlocks claimed = pool->claim_victims(1);
  pool->claim_victims(1).release_as_victims();
  {
    const PinnedBlocks pinned = pool->hold({&keys_[0], 1});
    EXPECT_TRUE(pinned.is_current());
    fence(*pool);
    EXPECT_FALSE(pinned.is_current());
    pool->check_invariants();
  }
  clock.advance(std::chrono::seconds(2));
  EXPECT_EQ(pool->counts().registered, 0U) << "and removed blocks do not expire";
  EXPECT_EQ(pool->counts().free, 5U);
  std::move(claimed).release_as_victims();
  EXPECT_EQ(pool->counts().ready, 0U);
  second = {};
  EXPECT_EQ(pool->counts().active, 1U);
  first.reset_on_release(true);
  first = {};
  EXPECT_EQ(pool->counts().free, 8U);
  pool->check_invariants();
  cache(*pool, chain(5, 8));
  EXPECT_EQ(pool->counts().registered, 8U);
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, TenantsGetTheirShareOfWhatIsReclaimed) {
  const auto pool = make({.tenants = {{.name = "a", .reserved = 400}, {.name = "b", .limit = 600}}}, 1000);
  const TenantId a{0};
  const TenantId b{1};
  cache(*pool, chain(1, 400), {}, a);
  cache(*pool, chain(2, 600), {}, b);
  fence(*pool);
  EXPECT_EQ(pool->usage(a)->inactive, 0U);
  cache(*pool, chain(3, 600), {}, b);
  pool->check_invariants();
  cache(*pool, chain(4, 400), {}, a);
  EXPECT_EQ(pool->stats().evicted, 0U);
  EXPECT_EQ(pool->counts().registered, 1000U);
  EXPECT_EQ(pool->usage(b)->used, 600U);
  pool->check_invariants();
}

TEST_F(BlockPoolFenceTest, EveryPolicyBeginsAnew) {
  for (const PolicyKind policy : kAllPolicies) {
    const auto pool = make({.policy = policy, .leaves_first = true});
    cache(*pool, keys_);
    cache(*pool, chain(2, 4));
    fence(*pool);
    cache(*pool, keys_);
    cache(*pool, chain(3, 4));
    EXPECT_THAT(resident_keys(*pool), UnorderedElementsAreArray(joined(keys_, chain(3, 4)))) << to_string(policy);
    EXPECT_EQ(evicted_for(*pool, 8).size(), 8U);
    pool->check_invariants();
  }
}

}  // namespace
}  // namespace cairn::testing
