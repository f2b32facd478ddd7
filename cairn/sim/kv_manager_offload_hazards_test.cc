// Cases in which the original is wrong with a tier below: what kSeed answers, and what kStrict answers instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/sim_tier_testing.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = SwapInStart::Outcome;

// A manager of 4-token blocks with LRU in G1 and a G2 of its own.
struct World {
  World(Profile profile, std::uint32_t g1, std::uint32_t g2, const OffloadOptions& options = {},
        const LinkOptions& link = {.bytes_per_second = 1'000'000'000})
      : mgr({.max_capacity = g1, .block_size = 4, .eviction = PolicyKind::kLru, .profile = profile}) {
    OffloadOptions with_tier = options;
    with_tier.block_bytes = kBlockBytes;
    with_tier.tiers = {test_tier(network, CacheLevel::kG2, g2, link)};
    EXPECT_TRUE(mgr->attach_offload_engine(with_tier, network));
  }
  [[nodiscard]] const OffloadEngine& engine() { return *mgr->offload_engine(); }
  // Puts these blocks into G2 only; all of G1 is free.
  void put_into_g2(const std::vector<std::uint64_t>& ids) {
    ASSERT_EQ(mgr.use(ids), ids.size());
    mgr.deref(ids);
    push_out(mgr, mgr->max_capacity());
    mgr.sink.take();
  }

  LinkNetwork network;
  TestManager mgr;
};

// In kSeed each eviction cuts a Use short. A scheduler takes that for a lack of blocks and preempts a request.
TEST(KvManagerOffloadHazardsTest, AUseThatMustWaitIsKeptInPartByTheSeedProfileOnly) {
  World seed(Profile::kSeed, 3, 8);
  World strict(Profile::kStrict, 3, 8);
  for (World* world : {&seed, &strict}) {
    ASSERT_EQ(world->mgr.use({1}), 1U);
    world->mgr.deref({1});
    world->mgr.sink.take();
  }
  EXPECT_EQ(seed.mgr.use({5, 6, 7}), 2U);
  EXPECT_THAT(seed.mgr.sink.take(), ElementsAre(stored({5, 6}), removed({1})));
  EXPECT_EQ(seed.mgr.counts(), (TestManager::Counts{3, 2, 0}));

  EXPECT_EQ(strict.mgr.use({5, 6, 7}), 0U);
  EXPECT_THAT(strict.mgr.sink.take(), ElementsAre(removed({1})));
  EXPECT_EQ(strict.mgr.counts(), (TestManager::Counts{1, 0, 0})) << "only the block that is read";
  for (World* world : {&seed, &strict}) {
    EXPECT_TRUE(world->mgr->waits_for_offload()) << "no request needs to be preempted";
    EXPECT_EQ(world->mgr->next_event_time(), milliseconds(1));
    ASSERT_TRUE(world->mgr.advance());
  }
  EXPECT_EQ(strict.mgr.use({5, 6, 7}), 3U);
  EXPECT_FALSE(strict.mgr->waits_for_offload());
}

TEST(KvManagerOffloadHazardsTest, ALackOfBlocksIsNotReportedAsWaiting) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    World world(profile, 2, 8);
    ASSERT_EQ(world.mgr.use({1, 2}), 2U);
    EXPECT_EQ(world.mgr.use({3}), 0U);
    EXPECT_FALSE(world.mgr->waits_for_offload()) << "all blocks are in use: waiting will not help";
    EXPECT_EQ(world.mgr->next_event_time(), std::nullopt);
  }
}

// A block that G2 has needs no copy, so there is nothing to wait for; kSeed waits all the same.
TEST(KvManagerOffloadHazardsTest, AVictimThatG2HasCutsAUseShortInTheSeedProfileOnly) {
  World seed(Profile::kSeed, 1, 8);
  World strict(Profile::kStrict, 1, 8);
  for (World* world : {&seed, &strict}) {
    world->put_into_g2({1});
    const SwapInStart started = world->mgr.swap_in({1});
    ASSERT_TRUE(world->mgr.advance());
    ASSERT_TRUE(world->mgr->end_swap_in(started.id));
    world->mgr.sink.take();
  }
  EXPECT_EQ(seed.mgr.use({2}), 0U);
  EXPECT_EQ(seed.mgr->next_event_time(), std::nullopt) << "a caller that waits for the next event waits forever";
  EXPECT_THAT(seed.mgr.sink.take(), ElementsAre(removed({1})));
  EXPECT_EQ(seed.mgr.use({2}), 1U) << "the block was free all the time";

  EXPECT_EQ(strict.mgr.use({2}), 1U);
  EXPECT_THAT(strict.mgr.sink.take(), ElementsAre(removed({1}), stored({2})));
  EXPECT_EQ(strict.engine().stats(0).copied, 1U) << "it was not copied again";
}

// kSeed evicts for the whole rest of the Use at once, its own hits first.
TEST(KvManagerOffloadHazardsTest, AUseMayEvictItsOwnHitsInTheSeedProfileOnly) {
  World seed(Profile::kSeed, 3, 8);
  World strict(Profile::kStrict, 3, 8);
  for (World* world : {&seed, &strict}) {
    ASSERT_EQ(world->mgr.use({1, 2, 3}), 3U);
    world->mgr.deref({1});
    world->mgr.deref({2});
    world->mgr.deref({3});
    world->mgr.sink.take();
    EXPECT_EQ(world->mgr.use({5, 1, 2}), 0U);
  }
  EXPECT_THAT(seed.mgr.sink.take(), ElementsAre(removed({1, 2})));
  EXPECT_THAT(strict.mgr.sink.take(), ElementsAre(removed({3})));
  ASSERT_TRUE(seed.mgr.advance());
  ASSERT_TRUE(strict.mgr.advance());
  EXPECT_EQ(strict.mgr.use({5, 1, 2}), 3U);
  EXPECT_EQ(seed.mgr.use({5, 1, 2}), 2U) << "1 and 2 are computed again, and 3 is evicted as well";
}

TEST(KvManagerOffloadHazardsTest, BlocksOfOneUseAreReleasedTogetherInTheSeedProfileOnly) {
  const OffloadOptions one_by_one{.batch_blocks = 1};
  const LinkOptions lane{.bytes_per_second = 1'000'000'000, .discipline = LinkDiscipline::kInOrder};
  World seed(Profile::kSeed, 3, 8, one_by_one, lane);
  World strict(Profile::kStrict, 3, 8, one_by_one, lane);
  for (World* world : {&seed, &strict}) {
    ASSERT_EQ(world->mgr.use({1, 2, 3}), 3U);
    world->mgr.deref({1, 2, 3});
    ASSERT_EQ(world->mgr.use({4, 5, 6}), 0U);
  }
  std::vector<std::size_t> seed_active;
  std::vector<std::size_t> strict_active;
  for (int ms = 1; ms <= 3; ++ms) {
    seed.mgr.advance_to(milliseconds(ms));
    strict.mgr.advance_to(milliseconds(ms));
    seed_active.push_back(seed.mgr->num_active_blocks());
    strict_active.push_back(strict.mgr->num_active_blocks());
    EXPECT_EQ(seed.engine().stats(0).copied, static_cast<std::uint64_t>(ms));
  }
  EXPECT_THAT(seed_active, ElementsAre(3, 3, 0));
  EXPECT_THAT(strict_active, ElementsAre(2, 1, 0));
}

TEST(KvManagerOffloadHazardsTest, BlocksThatNeedNoCopyAreQuarantinedInTheSeedProfileOnly) {
  World seed(Profile::kSeed, 2, 8);
  World strict(Profile::kStrict, 2, 8);
  for (World* world : {&seed, &strict}) {
    world->put_into_g2({1});
    const SwapInStart started = world->mgr.swap_in({1});
    ASSERT_TRUE(world->mgr.advance());
    ASSERT_TRUE(world->mgr->end_swap_in(started.id));
    ASSERT_EQ(world->mgr.use({2}), 1U);
    world->mgr.deref({2});
    ASSERT_EQ(world->mgr.use({3, 4}), 0U);  // 1 is in G2, 2 is not
  }
  EXPECT_EQ(seed.mgr->num_active_blocks(), 2U);
  EXPECT_EQ(strict.mgr->num_active_blocks(), 1U);
  EXPECT_EQ(strict.mgr.use({3}), 1U) << "a smaller Use is granted";
}

TEST(KvManagerOffloadHazardsTest, ABatchThatDoesNotFitIsLostInTheSeedProfileOnly) {
  World seed(Profile::kSeed, 3, 2);
  World strict(Profile::kStrict, 3, 2);
  for (World* world : {&seed, &strict}) {
    ASSERT_EQ(world->mgr.use({1, 2, 3}), 3U);
    world->mgr.deref({1, 2, 3});
    push_out(world->mgr, 3);
    EXPECT_EQ(world->mgr.counts(), (TestManager::Counts{0, 0, 0}));
  }
  EXPECT_EQ(seed.engine().stats(0), (OffloadTierStats{.dropped = 3}));
  EXPECT_EQ(strict.engine().stats(0), (OffloadTierStats{.copied = 2, .dropped = 1}));
}

TEST(KvManagerOffloadHazardsTest, ASwapInWithoutFreeBlocksIsPutOffByTheSeedProfileOnly) {
  World seed(Profile::kSeed, 2, 8);
  World strict(Profile::kStrict, 2, 8);
  for (World* world : {&seed, &strict}) {
    world->put_into_g2({1, 2});
    ASSERT_EQ(world->mgr.use({3, 4}), 2U);
    world->mgr.deref({3, 4});
    world->mgr.sink.take();
  }
  EXPECT_EQ(seed.mgr.swap_in({1, 2}).outcome, Outcome::kBlocked);
  EXPECT_THAT(seed.mgr.sink.take(), ElementsAre(removed({3, 4})));
  ASSERT_TRUE(seed.mgr.advance());
  EXPECT_EQ(seed.mgr.swap_in({1, 2}).outcome, Outcome::kScheduled) << "unless another Use took the blocks";

  const TimePoint begin = strict.engine().now();
  const SwapInStart started = strict.mgr.swap_in({1, 2});
  EXPECT_EQ(started.outcome, Outcome::kScheduled);
  EXPECT_THAT(strict.mgr.sink.take(), ElementsAre(removed({3, 4})));
  EXPECT_EQ(strict.mgr.use({9}), 0U) << "the blocks are reserved";
  strict.mgr.advance_to(begin + milliseconds(2));
  EXPECT_THAT(strict.mgr.sink.take(), ElementsAre(in_g2(stored({3})), in_g2(stored({4}))))
      << "the copies down come first";
  strict.mgr.advance_to(begin + milliseconds(4));
  EXPECT_THAT(strict.mgr.sink.take(), ElementsAre(stored({1}), stored({2})));
  EXPECT_THAT(strict.mgr->take_landed_swap_ins(), ElementsAre(started.id));
}

TEST(KvManagerOffloadHazardsTest, ASwapInThatDoesNotFitLoadsNothingInTheSeedProfileOnly) {
  World seed(Profile::kSeed, 3, 8);
  World strict(Profile::kStrict, 3, 8);
  for (World* world : {&seed, &strict}) {
    world->put_into_g2({1, 2, 3});
    ASSERT_EQ(world->mgr.use({4}), 1U);  // stays in use
  }
  EXPECT_EQ(seed.mgr.swap_in({1, 2, 3}).outcome, Outcome::kNothing);
  const SwapInStart started = strict.mgr.swap_in({1, 2, 3});
  EXPECT_EQ(started.outcome, Outcome::kScheduled);
  EXPECT_EQ(started.plan.blocks(), 2U);
}

TEST(KvManagerOffloadHazardsTest, SwappedInBlocksMayBeEvictedBeforeTheirUseInTheSeedProfileOnly) {
  World seed(Profile::kSeed, 2, 8);
  World strict(Profile::kStrict, 2, 8);
  SwapInStart started;
  for (World* world : {&seed, &strict}) {
    world->put_into_g2({1, 2});
    started = world->mgr.swap_in({1, 2});
    ASSERT_TRUE(world->mgr.advance());
    world->mgr.sink.take();
    EXPECT_EQ(world->mgr.use({9}), 0U);
  }
  EXPECT_THAT(seed.mgr.sink.take(), ElementsAre(removed({1})));
  EXPECT_THAT(strict.mgr.sink.take(), IsEmpty());
  EXPECT_FALSE(strict.mgr->waits_for_offload());
  EXPECT_EQ(strict.mgr.use({1, 2}), 2U) << "held until end_swap_in()";
  ASSERT_TRUE(strict.mgr->end_swap_in(started.id));
  EXPECT_EQ(strict.mgr.counts(), (TestManager::Counts{2, 2, 0}));
}

// The original loses events of a lower tier after a burst of 1,024.
TEST(KvManagerOffloadHazardsTest, ABurstOfEventsIsNotLost) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    World world(profile, 3000, 3000);
    std::vector<std::uint64_t> ids;
    for (std::uint64_t id = 1; id <= 3000; ++id) {
      ids.push_back(id);
    }
    ASSERT_EQ(world.mgr.use(ids), 3000U);
    world.mgr.deref(ids);
    world.mgr.sink.take();
    std::vector<UniqueBlock> partials;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      partials.push_back(UniqueBlock::partial(PartialId{i}));
    }
    ASSERT_EQ(*world.mgr.process(Use{.blocks = partials, .keys = {}}), 0U);
    world.mgr.advance_to(milliseconds(3000));
    std::vector<std::uint64_t> arrived;
    for (const SeenEvent& event : world.mgr.sink.take()) {
      if (event.tier == CacheLevel::kG2) {
        arrived.insert(arrived.end(), event.blocks.begin(), event.blocks.end());
      }
    }
    EXPECT_EQ(arrived.size(), 3000U);
    EXPECT_EQ(world.mgr.counts(), (TestManager::Counts{0, 0, 0}));
  }
}

}  // namespace
}  // namespace cairn::sim
