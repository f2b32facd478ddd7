// The simulated manager with real sequences: the original's tests, under their names, in both profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/kv_manager_testing.h"

namespace cairn::sim {
namespace {

using ::testing::ElementsAre;

class KvManagerSequenceTest : public ::testing::TestWithParam<Profile> {
 protected:
  static KvManagerOptions options(std::uint32_t capacity, std::uint32_t block_size) {
    return {.max_capacity = capacity, .block_size = block_size, .profile = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(Profiles, KvManagerSequenceTest, ::testing::Values(Profile::kSeed, Profile::kStrict),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(KvManagerSequenceTest, test_chunked_prefill_parent_hash) {
  TestManager mgr(options(256, 64));
  IdentitySource identities;
  ActiveSequence seq =
      *ActiveSequence::create(tokens_up_to(512), {.block_size = 64, .max_output_tokens = 100}, identities);
  for (const std::size_t chunk : {256, 512}) {
    ASSERT_EQ(*mgr.process(*seq.prepare_allocation(chunk)), 4U);
    seq.commit_allocation(chunk);
  }
  const std::vector<SeenEvent> events = mgr.sink.take();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(events[0].is_stored);
  EXPECT_EQ(events[0].parent, std::nullopt);
  EXPECT_EQ(events[1].parent, value_of(seq.unique_blocks()[3].hash()));
  EXPECT_EQ(events[0].event_id, 0U);
  EXPECT_EQ(events[1].event_id, 1U);
}

TEST_P(KvManagerSequenceTest, test_repreempt_after_partial_recompute_only_frees_reallocated_blocks) {
  TestManager mgr(options(16, 4));
  IdentitySource identities;
  ActiveSequence seq = *ActiveSequence::create(tokens_up_to(6), {.block_size = 4, .max_output_tokens = 16}, identities);
  ASSERT_EQ(*mgr.process(*seq.take_creation_signal()), 2U);
  for (int i = 0; i < 3; ++i) {
    const TokenMoves moves = *seq.generate();
    if (moves.promote) {
      ASSERT_TRUE(mgr.process(*moves.promote));
    }
    if (moves.use) {
      ASSERT_EQ(*mgr.process(*moves.use), 1U);
    }
    seq.commit_allocation(seq.size());
  }
  EXPECT_EQ(mgr->num_active_blocks(), 3U);
  ASSERT_TRUE(mgr.process(seq.reset_with_signal()));
  EXPECT_EQ(mgr->num_active_blocks(), 0U);
  ASSERT_EQ(*mgr.process(*seq.prepare_allocation(seq.num_input_tokens())), 2U);
  seq.commit_allocation(seq.num_input_tokens());
  EXPECT_EQ(mgr->num_active_blocks(), 2U);
  ASSERT_TRUE(mgr.process(seq.reset_with_signal()));
  EXPECT_EQ(mgr->num_active_blocks(), 0U);
}

TEST_P(KvManagerSequenceTest, test_random_plh_stable_across_preempt_retry) {
  TestManager mgr(options(8, 16));
  IdentitySource identities;
  ActiveSequence seq = *ActiveSequence::create(
      tokens_up_to(64), {.block_size = 16, .max_output_tokens = 100, .enable_prefix_caching = false}, identities);
  ASSERT_EQ(*mgr.process(*seq.take_creation_signal()), 4U);
  EXPECT_EQ(mgr->num_active_blocks(), 4U);
  ASSERT_TRUE(mgr.process(seq.reset_with_signal()));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 4}));
  ASSERT_EQ(*mgr.process(*seq.take_creation_signal()), 4U);
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{4, 4, 0}));
  EXPECT_EQ(mgr.sink.events().size(), 1U);
}

TEST_P(KvManagerSequenceTest, EventsCarryTheTokensOfNewBlocks) {
  TestManager mgr(options(8, 2));
  IdentitySource identities;
  const SequenceOptions with_tokens{.block_size = 2, .emit_token_ids = true};
  ActiveSequence first = *ActiveSequence::create(std::vector<Token>{1, 2}, with_tokens, identities);
  ActiveSequence second = *ActiveSequence::create(std::vector<Token>{1, 2, 3, 4, 5}, with_tokens, identities);
  ASSERT_TRUE(mgr.process(*first.take_creation_signal()));
  ASSERT_TRUE(mgr.process(*second.take_creation_signal()));
  ASSERT_TRUE(second.push(6));
  const TokenMoves moves = *second.push(7);
  ASSERT_TRUE(mgr.process(*moves.promote));
  ASSERT_EQ(mgr.sink.events().size(), 3U);
  EXPECT_THAT(mgr.sink.events()[1].token_ids, ElementsAre(3, 4));
  EXPECT_THAT(mgr.sink.events()[2].token_ids, ElementsAre(5, 6));
  EXPECT_THAT(mgr.sink.events()[2].tokens_hashes, ElementsAre(value_of(second.block_hashes()[2])));
}

TEST_P(KvManagerSequenceTest, test_prefill_cost_no_overlap) {
  TestManager mgr(options(10, 16));
  IdentitySource identities;
  const ActiveSequence seq =
      *ActiveSequence::create(tokens_up_to(35), {.block_size = 16, .max_output_tokens = 10}, identities);
  const PrefillCost cost = mgr->get_prefill_cost(seq);
  EXPECT_EQ(cost.new_blocks, seq.unique_blocks().size());
  EXPECT_EQ(cost.new_tokens, 35U);
}

TEST_P(KvManagerSequenceTest, PrefillCostCountsLeadingHits) {
  TestManager mgr(options(3, 16));
  IdentitySource identities;
  ActiveSequence seq = *ActiveSequence::create(tokens_up_to(48), {.block_size = 16}, identities);
  ASSERT_EQ(*mgr.process(*seq.take_creation_signal()), 3U);
  EXPECT_EQ(mgr->get_prefill_cost(seq), (PrefillCost{0, 0, 48}));
  ASSERT_TRUE(mgr.process(seq.reset_with_signal()));
  EXPECT_EQ(mgr->get_prefill_cost(seq), (PrefillCost{0, 0, 48}));
  mgr.use({1});  // evicts the leaf
  EXPECT_EQ(mgr->get_prefill_cost(seq), (PrefillCost{1, 16, 32}));
  const ActiveSequence uncached =
      *ActiveSequence::create(tokens_up_to(48), {.block_size = 16, .enable_prefix_caching = false}, identities);
  EXPECT_EQ(mgr->get_prefill_cost(uncached), (PrefillCost{3, 48, 0}));
}

}  // namespace
}  // namespace cairn::sim
