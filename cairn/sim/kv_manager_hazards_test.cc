// Cases in which the original is wrong: the seed profile answers as the original does, the strict profile correctly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Counts = TestManager::Counts;

KvManagerOptions options(Profile profile, std::uint32_t capacity, PolicyKind eviction = PolicyKind::kLru) {
  return {.max_capacity = capacity, .block_size = 16, .eviction = eviction, .profile = profile};
}

// A chain: each block is the parent of the next.
BlockKey chain(std::uint64_t id) { return *BlockKey::make(id, SequenceHash{id}, SequenceHash{id == 0 ? 0 : id - 1}); }

// Blocks 1 and 2 are evicted for 0 and 1, then come back, all in one Use.
void evict_and_reregister(TestManager& mgr) {
  EXPECT_EQ(mgr.use({0, 1, 2}), 3U);
  mgr.deref({0, 1, 2});
  EXPECT_EQ(mgr.use({13}), 1U);
  mgr.deref({13});
  mgr.sink.take();
  EXPECT_EQ(mgr.use({0, 1, 2}), 3U);
}

TEST(KvManagerHazardsTest, SeedReportsRemovedForABlockThatItRegisteredAgain) {
  TestManager mgr(options(Profile::kSeed, 3));
  evict_and_reregister(mgr);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({0, 1, 2}), removed({1, 2, 13})));
  EXPECT_EQ(mgr.counts(), (Counts{3, 3, 0}));  // 1 and 2 are resident all the same
  // No Removed is sent when they are evicted.
  mgr.deref({0, 1, 2});
  EXPECT_EQ(mgr.use({20, 21, 22}), 3U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({20, 21, 22}), removed({0})));
}

TEST(KvManagerHazardsTest, StrictPinsHitsAndLosesNothing) {
  TestManager mgr(options(Profile::kStrict, 3));
  evict_and_reregister(mgr);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({13}), stored({0})));
  EXPECT_EQ(mgr.counts(), (Counts{3, 3, 0}));
  mgr.deref({0, 1, 2});
  EXPECT_EQ(mgr.use({20, 21, 22}), 3U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({0, 1, 2}), stored({20}), stored({21}), stored({22})));
}

TEST(KvManagerHazardsTest, SeedDoesNotCountSuchABlockInThePrefillCost) {
  IdentitySource identities;
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 2));
    const ActiveSequence sequence = *ActiveSequence::create(tokens_up_to(32), {.block_size = 16}, identities);
    const auto use = [&](std::size_t begin, std::size_t count) {
      return *mgr.process(
          Use{.blocks = sequence.unique_blocks().subspan(begin, count), .keys = sequence.keys().subspan(begin, count)});
    };
    EXPECT_EQ(use(0, 2), 2U);
    ASSERT_TRUE(mgr.process(Deref{.blocks = sequence.unique_blocks()}));
    EXPECT_EQ(mgr.use({7}), 1U);  // evicts the first block
    mgr.deref({7});
    EXPECT_EQ(use(0, 2), 2U);  // evicts the second block, which comes back
    ASSERT_TRUE(mgr.process(Deref{.blocks = sequence.unique_blocks()}));
    EXPECT_EQ(mgr->num_inactive_blocks(), 2U);
    EXPECT_EQ(mgr->get_prefill_cost(sequence).cached_tokens, profile == Profile::kSeed ? 16U : 32U);
  }
}

TEST(KvManagerHazardsTest, HitsMayBeEvictedForMissesBeforeThem) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 2));
    mgr.use({1, 2});
    mgr.deref({1, 2});
    mgr.sink.take();
    // 1 is the next to be evicted, and a hit after the miss 5.
    EXPECT_EQ(mgr.use({5, 1}), 2U);
    if (profile == Profile::kSeed) {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({5, 1}), removed({1, 2})));
    } else {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({2}), stored({5})));
    }
  }
}

TEST(KvManagerHazardsTest, StoredComesBeforeRemovedInTheSeedProfileOnly) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 1));
    mgr.use({1});
    mgr.deref({1});
    mgr.sink.take();
    mgr.use({2});
    if (profile == Profile::kSeed) {
      EXPECT_THAT(mgr.sink.events(), ElementsAre(stored({2}), removed({1})));
    } else {
      EXPECT_THAT(mgr.sink.events(), ElementsAre(removed({1}), stored({2})));
    }
    EXPECT_EQ(mgr.sink.events()[0].event_id + 1, mgr.sink.events()[1].event_id);
  }
}

TEST(KvManagerHazardsTest, AHitAfterAMissBecomesTheParentOfAllInTheSeedProfileOnly) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 8), &chain);
    mgr.use({2}, 1);
    mgr.sink.take();
    EXPECT_EQ(mgr.use({1, 2, 3}, 0), 3U);  // a miss, a hit, a miss
    if (profile == Profile::kSeed) {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({1, 3}, 2)));
    } else {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({1}, 0), stored({3}, 2)));
    }
  }
}

// Blocks that do not follow each other: seed reports one parent for all, strict only parents that it knows.
TEST(KvManagerHazardsTest, StrictStoredRunsAreChains) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 8), &chain);
    EXPECT_EQ(mgr.use({0, 1, 4, 5, 2}), 5U);
    if (profile == Profile::kSeed) {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({0, 1, 4, 5, 2})));
    } else {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({0, 1}), stored({4, 5}), stored({2})));
    }
  }
}

TEST(KvManagerHazardsTest, AUseWithoutRoomIsKeptInPartByTheSeedProfileOnly) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 4), &chain);
    mgr.use({0, 1, 2});
    mgr.deref({2, 1});
    mgr.sink.take();
    EXPECT_EQ(mgr.counts(), (Counts{1, 1, 2}));
    // One hit in use, two inactive ones, and two misses for one free block.
    const std::size_t granted = mgr.use({0, 1, 2, 3, 4});
    if (profile == Profile::kSeed) {
      EXPECT_EQ(granted, 4U);
      EXPECT_EQ(mgr.counts(), (Counts{4, 5, 0}));
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({3}, 2)));
    } else {
      EXPECT_EQ(granted, 0U);
      EXPECT_EQ(mgr.counts(), (Counts{1, 1, 2}));
      EXPECT_THAT(mgr.sink.take(), IsEmpty());
    }
  }
}

// A hit after a miss for which there is no room is not taken.
TEST(KvManagerHazardsTest, SeedStopsAtTheFirstBlockWithoutRoom) {
  TestManager mgr(options(Profile::kSeed, 2));
  mgr.use({1, 2});
  EXPECT_EQ(mgr.use({1, 3, 2}), 1U);
  EXPECT_EQ(mgr.refcount(1), 2U);
  EXPECT_EQ(mgr.refcount(2), 1U);
  EXPECT_EQ(mgr.refcount(3), 0U);
}

// A refused Use leaves the order of eviction as it was.
TEST(KvManagerHazardsTest, ARefusedUseHasNoEffectInStrict) {
  TestManager mgr(options(Profile::kStrict, 3));
  mgr.use({1, 2, 3});
  mgr.deref({1, 2, 3});
  EXPECT_EQ(mgr.use({1, 4, 5, 6}), 0U);
  mgr.sink.take();
  EXPECT_EQ(mgr.use({7}), 1U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({1}), stored({7})));
}

TEST(KvManagerHazardsTest, SeedReportsTheFirstHashOfAKey) {
  TestManager mgr(options(Profile::kSeed, 1));
  ASSERT_TRUE(mgr.use_full(1, plh(100)));
  ASSERT_TRUE(mgr.use_full(2, plh(100)));
  EXPECT_EQ(mgr.counts(), (Counts{1, 2, 0}));
  mgr.deref({1});
  EXPECT_EQ(mgr.counts(), (Counts{1, 1, 0}));
  mgr.deref({2});
  EXPECT_EQ(mgr.counts(), (Counts{0, 0, 1}));
  ASSERT_TRUE(mgr.use_full(3, plh(300)));
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({1}), stored({3}), removed({1})));
}

TEST(KvManagerHazardsTest, OneHashForTwoKeysIsAHitInTheSeedProfileAndAnErrorInTheStrictOne) {
  const BlockKey other = *BlockKey::make(1, SequenceHash{1}, SequenceHash{9});
  TestManager seed(options(Profile::kSeed, 4));
  ASSERT_TRUE(seed.use_full(1, plh(1)));
  EXPECT_EQ(*seed.use_full(1, other), 1U);
  EXPECT_EQ(seed.counts(), (Counts{1, 2, 0}));

  TestManager strict(options(Profile::kStrict, 4));
  ASSERT_TRUE(strict.use_full(1, plh(1)));
  EXPECT_FALSE(strict.use_full(1, other));
  EXPECT_EQ(strict.counts(), (Counts{1, 1, 0}));
  // Also within one Use, which then gets no blocks.
  const UniqueBlock blocks[] = {UniqueBlock::full(SequenceHash{2}), UniqueBlock::full(SequenceHash{2})};
  const BlockKey keys[] = {plh(2), *BlockKey::make(1, SequenceHash{2}, SequenceHash{2})};
  EXPECT_FALSE(strict.process(Use{.blocks = blocks, .keys = keys}));
  EXPECT_EQ(strict.counts(), (Counts{1, 1, 0}));
  EXPECT_EQ(*seed.process(Use{.blocks = blocks, .keys = keys}), 2U);
  EXPECT_EQ(seed.refcount(2), 2U);
}

TEST(KvManagerHazardsTest, ABlockThatOccursTwiceInAUseGetsTwoReferences) {
  for (const Profile profile : {Profile::kSeed, Profile::kStrict}) {
    TestManager mgr(options(profile, 2));
    EXPECT_EQ(mgr.use({1, 1, 2, 1}), 4U);
    EXPECT_EQ(mgr.counts(), (Counts{2, 4, 0}));
    mgr.deref({1, 2, 1, 1});
    EXPECT_EQ(mgr.counts(), (Counts{0, 0, 2}));
    // The block that was released last is evicted last.
    mgr.sink.take();
    EXPECT_EQ(mgr.use({3}), 1U);
    EXPECT_THAT(mgr.sink.take(), ::testing::Contains(removed({2})));
  }
}

// The original's tests do not distinguish these policies.
TEST(KvManagerHazardsTest, LineageAndLruDifferIfRootsAreReleasedFirst) {
  const auto key_of = [](std::uint64_t id) { return id < 10 ? chain(id) : plh(id); };
  for (const PolicyKind policy : {PolicyKind::kLineageTick, PolicyKind::kLru}) {
    TestManager mgr(options(Profile::kSeed, 5, policy), key_of);
    mgr.use({0, 1, 2, 3, 4});
    mgr.deref({0, 1, 2, 3, 4});
    mgr.sink.take();
    mgr.use({10, 11, 12});
    mgr.use({13});
    if (policy == PolicyKind::kLru) {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({10, 11, 12}), removed({0, 1, 2}), stored({13}), removed({3})));
    } else {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({10, 11, 12}), removed({4, 3, 2}), stored({13}), removed({1})));
    }
  }
}

}  // namespace
}  // namespace cairn::sim
