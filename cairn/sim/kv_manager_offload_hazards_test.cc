// Cases in which the original is wrong with a tier below, and what the simulated manager answers as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/sim_tier_testing.h"

namespace cairn::sim {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using Outcome = SwapInStart::Outcome;

// A manager of 4-token blocks with LRU in G1 and a G2 of its own.
struct World {
  World(std::uint32_t g1, std::uint32_t g2, const OffloadOptions& options = {},
        const LinkOptions& link = {.bytes_per_second = 1'000'000'000})
      : mgr({.max_capacity = g1, .block_size = 4, .eviction = PolicyKind::kLru, .profile = Profile::kSeed}) {
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

// Each eviction cuts a Use short. A scheduler takes that for a lack of blocks and preempts a request.
TEST(KvManagerOffloadHazardsTest, AUseThatMustWaitIsKeptInPart) {
  World world(3, 8);
  ASSERT_EQ(world.mgr.use({1}), 1U);
  world.mgr.deref({1});
  world.mgr.sink.take();
  EXPECT_EQ(world.mgr.use({5, 6, 7}), 2U);
  EXPECT_THAT(world.mgr.sink.take(), ElementsAre(stored({5, 6}), removed({1})));
  EXPECT_EQ(world.mgr.counts(), (TestManager::Counts{3, 2, 0}));
  EXPECT_TRUE(world.mgr->waits_for_offload()) << "no request needs to be preempted";
  EXPECT_EQ(world.mgr->next_event_time(), milliseconds(1));
}

TEST(KvManagerOffloadHazardsTest, ALackOfBlocksIsNotReportedAsWaiting) {
  World world(2, 8);
  ASSERT_EQ(world.mgr.use({1, 2}), 2U);
  EXPECT_EQ(world.mgr.use({3}), 0U);
  EXPECT_FALSE(world.mgr->waits_for_offload()) << "all blocks are in use: waiting will not help";
  EXPECT_EQ(world.mgr->next_event_time(), std::nullopt);
}

// A block that G2 has needs no copy, so there is nothing to wait for.
TEST(KvManagerOffloadHazardsTest, AVictimThatG2HasCutsAUseShort) {
  World world(1, 8);
  world.put_into_g2({1});
  ASSERT_EQ(world.mgr.swap_in({1}).outcome, Outcome::kScheduled);
  ASSERT_TRUE(world.mgr.advance());
  world.mgr.sink.take();
  EXPECT_EQ(world.mgr.use({2}), 0U);
  EXPECT_EQ(world.mgr->next_event_time(), std::nullopt) << "a caller that waits for the next event waits forever";
  EXPECT_THAT(world.mgr.sink.take(), ElementsAre(removed({1})));
  EXPECT_EQ(world.mgr.use({2}), 1U) << "the block was free all the time";
}

// The whole rest of the Use is evicted for at once, its own hits first.
TEST(KvManagerOffloadHazardsTest, AUseMayEvictItsOwnHits) {
  World world(3, 8);
  ASSERT_EQ(world.mgr.use({1, 2, 3}), 3U);
  world.mgr.deref({1});
  world.mgr.deref({2});
  world.mgr.deref({3});
  world.mgr.sink.take();
  EXPECT_EQ(world.mgr.use({5, 1, 2}), 0U);
  EXPECT_THAT(world.mgr.sink.take(), ElementsAre(removed({1, 2})));
  ASSERT_TRUE(world.mgr.advance());
  EXPECT_EQ(world.mgr.use({5, 1, 2}), 2U) << "1 and 2 are computed again, and 3 is evicted as well";
}

TEST(KvManagerOffloadHazardsTest, BlocksOfOneUseAreReleasedTogether) {
  World world(3, 8, {.batch_blocks = 1}, {.bytes_per_second = 1'000'000'000, .discipline = LinkDiscipline::kInOrder});
  ASSERT_EQ(world.mgr.use({1, 2, 3}), 3U);
  world.mgr.deref({1, 2, 3});
  ASSERT_EQ(world.mgr.use({4, 5, 6}), 0U);
  std::vector<std::size_t> active;
  for (int ms = 1; ms <= 3; ++ms) {
    world.mgr.advance_to(milliseconds(ms));
    active.push_back(world.mgr->num_active_blocks());
    EXPECT_EQ(world.engine().stats(0).copied, static_cast<std::uint64_t>(ms));
  }
  EXPECT_THAT(active, ElementsAre(3, 3, 0));
}

TEST(KvManagerOffloadHazardsTest, BlocksThatNeedNoCopyAreQuarantined) {
  World world(2, 8);
  world.put_into_g2({1});
  ASSERT_EQ(world.mgr.swap_in({1}).outcome, Outcome::kScheduled);
  ASSERT_TRUE(world.mgr.advance());
  ASSERT_EQ(world.mgr.use({2}), 1U);
  world.mgr.deref({2});
  ASSERT_EQ(world.mgr.use({3, 4}), 0U);  // 1 is in G2, 2 is not
  EXPECT_EQ(world.mgr->num_active_blocks(), 2U);
}

TEST(KvManagerOffloadHazardsTest, ABatchThatDoesNotFitIsLost) {
  World world(3, 2);
  ASSERT_EQ(world.mgr.use({1, 2, 3}), 3U);
  world.mgr.deref({1, 2, 3});
  push_out(world.mgr, 3);
  EXPECT_EQ(world.mgr.counts(), (TestManager::Counts{0, 0, 0}));
  EXPECT_EQ(world.engine().stats(0), (OffloadTierStats{.dropped = 3}));
}

TEST(KvManagerOffloadHazardsTest, ASwapInWithoutFreeBlocksIsPutOff) {
  World world(2, 8);
  world.put_into_g2({1, 2});
  ASSERT_EQ(world.mgr.use({3, 4}), 2U);
  world.mgr.deref({3, 4});
  world.mgr.sink.take();
  EXPECT_EQ(world.mgr.swap_in({1, 2}).outcome, Outcome::kBlocked);
  EXPECT_THAT(world.mgr.sink.take(), ElementsAre(removed({3, 4})));
  ASSERT_TRUE(world.mgr.advance());
  EXPECT_EQ(world.mgr.swap_in({1, 2}).outcome, Outcome::kScheduled) << "unless another Use took the blocks";
}

TEST(KvManagerOffloadHazardsTest, ASwapInThatDoesNotFitLoadsNothing) {
  World world(3, 8);
  world.put_into_g2({1, 2, 3});
  ASSERT_EQ(world.mgr.use({4}), 1U);  // stays in use
  EXPECT_EQ(world.mgr.swap_in({1, 2, 3}).outcome, Outcome::kNothing);
}

TEST(KvManagerOffloadHazardsTest, SwappedInBlocksMayBeEvictedBeforeTheirUse) {
  World world(2, 8);
  world.put_into_g2({1, 2});
  ASSERT_EQ(world.mgr.swap_in({1, 2}).outcome, Outcome::kScheduled);
  ASSERT_TRUE(world.mgr.advance());
  world.mgr.sink.take();
  EXPECT_EQ(world.mgr.use({9}), 0U);
  EXPECT_THAT(world.mgr.sink.take(), ElementsAre(removed({1})));
}

// The original loses events of a lower tier after a burst of 1,024.
TEST(KvManagerOffloadHazardsTest, ABurstOfEventsIsNotLost) {
  World world(3000, 3000);
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

}  // namespace
}  // namespace cairn::sim
