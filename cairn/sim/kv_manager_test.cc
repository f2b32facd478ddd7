// The original's own tests, under their names; in both profiles if both must answer the same.
#include "cairn/sim/kv_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class KvManagerTest : public ::testing::TestWithParam<Profile> {
 protected:
  static KvManagerOptions options(std::uint32_t capacity, std::uint32_t block_size,
                                  PolicyKind eviction = PolicyKind::kLineageTick) {
    return {.max_capacity = capacity, .block_size = block_size, .eviction = eviction, .profile = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(Profiles, KvManagerTest, ::testing::Values(Profile::kSeed, Profile::kStrict),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// Blocks of five sequences: 0-1-2-3-4, 1-5-6, 2-7-8-9, 10-11-12, 13.
BlockKey lineage_plh(std::uint64_t id) {
  constexpr std::uint64_t kNone = 0;
  struct Place {
    std::uint32_t position;
    std::uint64_t parent;
  };
  constexpr Place kPlaces[] = {{0, kNone}, {1, 0}, {2, 1}, {3, 2},     {4, 3},  {2, 1},  {3, 5},
                               {3, 2},     {4, 7}, {5, 8}, {0, kNone}, {1, 10}, {2, 11}, {0, kNone}};
  return *BlockKey::make(kPlaces[id].position, SequenceHash{id}, SequenceHash{kPlaces[id].parent});
}

TEST_P(KvManagerTest, test_use_single_full_block) {
  TestManager mgr(options(10, 16));
  EXPECT_EQ(mgr.use({1}), 1U);
  EXPECT_EQ(mgr->num_active_blocks(), 1U);
}

TEST_P(KvManagerTest, HasTheDataParallelRankItWasGiven) {
  EXPECT_EQ(TestManager(options(10, 16))->dp_rank(), 0U);
  KvManagerOptions third = options(10, 16);
  third.dp_rank = 3;
  EXPECT_EQ(TestManager(third)->dp_rank(), 3U);
}

TEST_P(KvManagerTest, ActiveShareIsThatOfBlocksInUse) {
  TestManager mgr(options(8, 16));
  EXPECT_EQ(mgr->get_active_perc(), 0.0);
  mgr.use({1, 2});
  mgr.use({1});  // another reference, not another block
  EXPECT_EQ(mgr->get_active_perc(), 0.25);
  mgr.deref({1});
  mgr.deref({2});  // inactive: still cached, not in use
  EXPECT_EQ(mgr->get_active_perc(), 0.125);
  mgr.deref({1});
  EXPECT_EQ(mgr->get_active_perc(), 0.0);
  EXPECT_EQ(mgr.use({3, 4, 5, 6, 7, 8, 9, 10}), 8U);
  EXPECT_EQ(mgr->get_active_perc(), 1.0);
}

TEST_P(KvManagerTest, use_rejects_short_token_ids_before_mutating_state) {
  TestManager mgr(options(10, 4));
  const std::vector<UniqueBlock> blocks{UniqueBlock::full(SequenceHash{1}), UniqueBlock::full(SequenceHash{2})};
  const std::vector<BlockKey> keys{plh(1), plh(2)};
  const std::vector<BlockHash> hashes{BlockHash{101}, BlockHash{102}};
  const std::vector<Token> tokens = tokens_up_to(4);
  const auto result = mgr.process(Use{.blocks = blocks, .keys = keys, .tokens_hashes = hashes, .token_ids = tokens});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("4 token ids for 2 full blocks of 4"));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 0}));
  EXPECT_THAT(mgr.sink.events(), IsEmpty());
}

TEST_P(KvManagerTest, RejectsAnInconsistentUse) {
  TestManager mgr(options(10, 4));
  const UniqueBlock full = UniqueBlock::full(SequenceHash{1});
  const UniqueBlock partial = UniqueBlock::partial(PartialId{1});
  const BlockKey key = plh(1);
  const BlockHash hashes[] = {BlockHash{1}, BlockHash{2}};
  EXPECT_FALSE(mgr.process(Use{.blocks = {&full, 1}, .keys = {}}));
  EXPECT_FALSE(mgr.process(Use{.blocks = {&partial, 1}, .keys = {&key, 1}}));
  EXPECT_FALSE(mgr.process(Use{.blocks = {&full, 1}, .keys = {&key, 1}, .tokens_hashes = hashes}));
  EXPECT_FALSE(mgr.process(Use{.blocks = {&full, 1}, .keys = {&key, 1}, .parent = partial}));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 0}));
}

TEST_P(KvManagerTest, test_duplicate_use_bumps_refcount) {
  TestManager mgr(options(10, 16));
  mgr.use({1});
  mgr.use({1});
  EXPECT_EQ(mgr->num_active_blocks(), 1U);
  EXPECT_EQ(mgr->num_active_block_refs(), 2U);
}

TEST_P(KvManagerTest, test_capacity_exhaustion_returns_partial) {
  TestManager mgr(options(4, 16));
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(mgr.use({i}), 1U);
  }
  EXPECT_EQ(mgr.use({4}), 0U);
}

TEST_P(KvManagerTest, test_deref_returns_to_inactive) {
  TestManager mgr(options(4, 16));
  mgr.use({1});
  mgr.deref({1});
  EXPECT_EQ(mgr->num_active_blocks(), 0U);
  EXPECT_EQ(mgr->num_inactive_blocks(), 1U);
}

// One key under two hashes: only the seed profile accepts it.
TEST_P(KvManagerTest, test_inactive_reuse_via_match_blocks) {
  TestManager mgr(options(10, 16));
  if (GetParam() == Profile::kStrict) {
    const auto result = mgr.use_full(1, plh(100));
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("the block 1 has the key of block 100"));
    EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 0}));
    return;
  }
  EXPECT_EQ(*mgr.use_full(1, plh(100)), 1U);
  mgr.deref({1});
  EXPECT_EQ(*mgr.use_full(2, plh(100)), 1U);
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{1, 1, 0}));
}

TEST_P(KvManagerTest, test_eviction_frees_inactive_for_new_allocation) {
  TestManager mgr(options(4, 16));
  for (std::uint64_t i = 0; i < 4; ++i) {
    mgr.use({i});
  }
  for (std::uint64_t i = 0; i < 4; ++i) {
    mgr.deref({i});
  }
  for (std::uint64_t i = 10; i < 14; ++i) {
    EXPECT_EQ(mgr.use({i}), 1U);
  }
  EXPECT_EQ(mgr->num_active_blocks(), 4U);
}

// The original tests two policies besides its default; this test covers all of ours.
TEST_P(KvManagerTest, test_eviction_backend_lru_and_multi_lru) {
  for (const PolicyKind policy : kAllPolicies) {
    TestManager mgr(options(4, 16, policy));
    for (std::uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(mgr.use({i}), 1U);
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
      mgr.deref({i});
    }
    for (std::uint64_t i = 10; i < 14; ++i) {
      EXPECT_EQ(mgr.use({i}), 1U) << to_string(policy);
    }
    EXPECT_EQ(mgr->num_active_blocks(), 4U);
  }
}

TEST_P(KvManagerTest, test_promote_basic) {
  TestManager mgr(options(10, 16));
  const PartialId partial{7};
  EXPECT_EQ(*mgr.use_partial(partial), 1U);
  EXPECT_EQ(*mgr.process(Promote{.partial = partial, .hash = SequenceHash{42}, .key = plh(42)}), 1U);
  EXPECT_EQ(mgr->num_active_blocks(), 1U);
  EXPECT_FALSE(mgr->holds(partial));
  EXPECT_EQ(mgr.refcount(42), 1U);
  EXPECT_THAT(mgr.sink.events(), ElementsAre(stored({42})));
}

TEST_P(KvManagerTest, test_promote_nonexistent_panics) {
  TestManager mgr(options(10, 16));
  const auto result = mgr.process(Promote{.partial = PartialId{7}, .hash = SequenceHash{42}, .key = plh(42)});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("Promote: partial block not found"));
}

TEST_P(KvManagerTest, PromoteToAResidentKeyReleasesThePartialBlock) {
  TestManager mgr(options(3, 16));
  mgr.use({42});
  EXPECT_EQ(*mgr.use_partial(PartialId{1}), 1U);
  EXPECT_EQ(*mgr.process(Promote{.partial = PartialId{1}, .hash = SequenceHash{42}, .key = plh(42)}), 1U);
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{1, 2, 0}));
  mgr.deref({42, 42});
  EXPECT_EQ(*mgr.use_partial(PartialId{2}), 1U);
  EXPECT_EQ(*mgr.process(Promote{.partial = PartialId{2}, .hash = SequenceHash{42}, .key = plh(42)}), 1U);
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{1, 1, 0}));
  EXPECT_THAT(mgr.sink.events(), ElementsAre(stored({42})));
}

TEST_P(KvManagerTest, test_deref_partial_returns_to_reset) {
  TestManager mgr(options(10, 16));
  const PartialId partial{7};
  EXPECT_EQ(*mgr.use_partial(partial), 1U);
  EXPECT_TRUE(mgr->holds(partial));
  EXPECT_EQ(*mgr.use_partial(partial), 1U);  // held already: nothing more is taken
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{1, 1, 0}));
  EXPECT_EQ(*mgr.deref_partial(partial), 1U);
  EXPECT_FALSE(mgr->holds(partial));
  EXPECT_EQ(mgr->num_active_block_refs(), 0U);
}

TEST_P(KvManagerTest, DerefOfABlockThatIsNotHeldHasNoEffect) {
  TestManager mgr(options(10, 16));
  mgr.use({1, 2});
  mgr.use({1});
  const auto result = mgr.try_deref({2, 1, 1, 1});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, HasSubstr("Deref: the full block 3 of 4 is not in use"));
  EXPECT_FALSE(mgr.deref_partial(PartialId{1}));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{2, 3, 0}));
  EXPECT_EQ(mgr.refcount(1), 2U);
  mgr.deref({2, 1, 1});
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 2}));
}

TEST_P(KvManagerTest, test_failure_on_max_capacity) {
  TestManager mgr(options(10, 16));
  EXPECT_EQ(mgr.use({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), 10U);
  EXPECT_EQ(mgr->num_active_blocks(), 10U);
  EXPECT_EQ(mgr.use({10}), 0U);
}

TEST_P(KvManagerTest, test_block_lifecycle_stringent) {
  TestManager mgr(options(10, 16), &lineage_plh);
  const auto refcounts = [&](std::initializer_list<std::uint64_t> ids) {
    std::vector<std::size_t> counts;
    for (const std::uint64_t id : ids) {
      counts.push_back(mgr.refcount(id));
    }
    return counts;
  };
  const auto all_inactive = [&](std::initializer_list<std::uint64_t> ids) {
    EXPECT_EQ(mgr->num_inactive_blocks(), ids.size());
    for (const std::uint64_t id : ids) {
      EXPECT_TRUE(mgr.is_inactive(id)) << id;
    }
  };
  const auto expect_events = [&](const SeenEvent& store, const SeenEvent& remove) {
    if (GetParam() == Profile::kSeed) {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(store, remove));
    } else {
      EXPECT_THAT(mgr.sink.take(), ElementsAre(remove, store));
    }
  };

  EXPECT_EQ(mgr.use({0, 1, 2, 3, 4}), 5U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({0, 1, 2, 3, 4})));
  EXPECT_EQ(mgr.use({0, 1, 5, 6}), 4U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({5, 6}, 1)));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{7, 9, 0}));
  EXPECT_THAT(refcounts({0, 1, 2, 3, 4, 5, 6}), ElementsAre(2, 2, 1, 1, 1, 1, 1));

  mgr.deref({4, 3, 2, 1, 0});
  EXPECT_THAT(mgr.sink.take(), IsEmpty());
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{4, 4, 3}));
  EXPECT_THAT(refcounts({0, 1, 5, 6}), ElementsAre(1, 1, 1, 1));
  all_inactive({2, 3, 4});

  mgr.deref({6, 5, 1, 0});
  EXPECT_THAT(mgr.sink.take(), IsEmpty());
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 7}));
  all_inactive({0, 1, 2, 3, 4, 5, 6});

  EXPECT_EQ(mgr.use({0, 1, 2, 7, 8, 9}), 6U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({7, 8, 9}, 2)));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{6, 6, 4}));
  all_inactive({3, 4, 5, 6});

  EXPECT_EQ(mgr.use({10, 11, 12}), 3U);
  expect_events(stored({10, 11, 12}), removed({4, 3, 6}));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{9, 9, 1}));
  all_inactive({5});

  EXPECT_EQ(mgr.use({13}), 1U);
  expect_events(stored({13}), removed({5}));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{10, 10, 0}));
}

TEST_P(KvManagerTest, test_inactive_hit_does_not_republish_stored) {
  TestManager mgr(options(4, 16));
  mgr.use({1});
  mgr.deref({1});
  mgr.use({1});
  EXPECT_THAT(mgr.sink.events(), ElementsAre(stored({1})));
}

TEST_P(KvManagerTest, test_stored_suffix_anchors_to_last_reused_block) {
  const auto key_of = [](std::uint64_t id) { return *BlockKey::make(id - 10, SequenceHash{id}, SequenceHash{id - 1}); };
  TestManager mgr(options(8, 16), key_of);
  mgr.use({10, 11});
  mgr.deref({10});
  mgr.deref({11});
  mgr.sink.take();
  mgr.use({10, 11, 12});
  EXPECT_THAT(mgr.sink.events(), ElementsAre(stored({12}, 11)));
}

TEST_P(KvManagerTest, test_shared_prefix_distinct_vs_refcount) {
  TestManager mgr(options(8, 16));
  mgr.use({10, 11, 12});
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{3, 3, 0}));
  mgr.use({10, 11, 13});
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{4, 6, 0}));
}

TEST_P(KvManagerTest, test_eviction_emits_exact_removed_event) {
  TestManager mgr(options(2, 16));
  mgr.use({10, 11});
  mgr.deref({10});
  mgr.deref({11});
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 2}));
  mgr.sink.take();
  mgr.use({12});
  EXPECT_THAT(mgr.sink.events(), ::testing::UnorderedElementsAre(stored({12}), removed({10})));
}

TEST_P(KvManagerTest, RejectsBadOptions) {
  EXPECT_FALSE(KvManager::create(options(0, 16)));
  EXPECT_FALSE(KvManager::create(options(10, 1)));
}

}  // namespace
}  // namespace cairn::sim
