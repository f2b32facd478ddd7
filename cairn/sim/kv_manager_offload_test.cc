// The original's tests of the tier below G1, under their names, and its scheduler's tests of swap-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/sim/kv_manager.h"
#include "cairn/sim/sim_tier_testing.h"

namespace cairn::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = SwapInStart::Outcome;

class KvManagerOffloadTest : public ::testing::Test {
 protected:
  static KvManagerOptions options(std::uint32_t capacity, std::uint32_t block_size = 4) {
    return {.max_capacity = capacity, .block_size = block_size, .profile = Profile::kSeed};
  }

  LinkNetwork network;
};

TEST_F(KvManagerOffloadTest, fresh_manager_has_no_offload_engine) {
  TestManager mgr(options(8));
  EXPECT_FALSE(mgr->has_offload_engine());
  EXPECT_EQ(mgr->offload_engine(), nullptr);
  EXPECT_EQ(mgr->next_event_time(), std::nullopt);
  mgr.advance_to(milliseconds(1));
}

TEST_F(KvManagerOffloadTest, attach_new_offload_engine_wires_in_after_construction) {
  TestManager mgr(options(16));
  EXPECT_FALSE(mgr->has_offload_engine());
  attach_test_offload_engine(mgr, network, 100);
  EXPECT_TRUE(mgr->has_offload_engine());
  EXPECT_EQ(mgr->offload_engine()->tier_count(), 1U);
}

TEST_F(KvManagerOffloadTest, g2_completion_publishes_host_pinned_stored_event) {
  TestManager mgr(options(1));
  attach_test_offload_engine(mgr, network, 1);
  EXPECT_EQ(mgr.use_with_hash(1, 101, {1, 2, 3, 4}), 1U);
  mgr.deref({1});
  mgr.sink.take();

  EXPECT_EQ(mgr.use_with_hash(2, 202, {5, 6, 7, 8}), 0U);
  EXPECT_TRUE(mgr->waits_for_offload());
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({1}))) << "G2 has no block before the copy has ended";

  EXPECT_EQ(mgr->next_event_time(), milliseconds(1));
  ASSERT_TRUE(mgr.advance());
  const std::vector<SeenEvent> completed = mgr.sink.take();
  ASSERT_THAT(completed, ElementsAre(in_g2(stored({1}))));
  EXPECT_THAT(completed[0].tokens_hashes, ElementsAre(101));
}

TEST_F(KvManagerOffloadTest, g2_eviction_publishes_host_pinned_removed_event) {
  TestManager mgr(options(1));
  attach_test_offload_engine(mgr, network, 1);
  EXPECT_EQ(mgr.use_with_hash(1, 101, {1, 2, 3, 4}), 1U);
  mgr.deref({1});
  EXPECT_EQ(mgr.use_with_hash(2, 202, {5, 6, 7, 8}), 0U);
  ASSERT_TRUE(mgr.advance());
  EXPECT_EQ(mgr.use_with_hash(2, 202, {5, 6, 7, 8}), 1U);
  mgr.deref({2});
  mgr.sink.take();

  EXPECT_EQ(mgr.use_with_hash(3, 303, {9, 10, 11, 12}), 0U);
  ASSERT_TRUE(mgr.advance());
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({2}), in_g2(removed({1})), in_g2(stored({2}))));
}

TEST_F(KvManagerOffloadTest, reoffloaded_swapped_in_block_keeps_token_ids_for_g2_raw_event) {
  TestManager mgr(options(2));
  attach_test_offload_engine(mgr, network, 1);
  const std::vector<Token> tokens{1, 2, 3, 4};
  EXPECT_EQ(mgr.use_with_hash(1, 101, tokens), 1U);
  mgr.deref({1});
  push_out(mgr, 2);
  EXPECT_FALSE(mgr->is_resident(plh(1)));

  // 1 is loaded; its tokens come from the Use of the sequence.
  const UniqueBlock block = UniqueBlock::full(SequenceHash{1});
  const BlockKey key = plh(1);
  const BlockHash hash{101};
  const SwapInStart started = *mgr->start_swap_in(
      Use{.blocks = {&block, 1}, .keys = {&key, 1}, .tokens_hashes = {&hash, 1}, .token_ids = tokens});
  ASSERT_EQ(started.outcome, Outcome::kScheduled);
  ASSERT_TRUE(mgr.advance());
  EXPECT_THAT(mgr->take_landed_swap_ins(), ElementsAre(started.id));
  EXPECT_TRUE(mgr.is_inactive(1));

  // While it is in use, another block takes its place in G2.
  EXPECT_EQ(mgr.use({1, 2}), 2U);
  mgr.deref({2});
  push_out(mgr, 1);
  EXPECT_FALSE(mgr->offload_engine()->tier(0).contains(key));
  mgr.deref({1});
  mgr.sink.take();

  push_out(mgr, 2);
  const std::vector<SeenEvent> events = mgr.sink.take();
  ASSERT_THAT(events, ElementsAre(removed({1}), in_g2(removed({2})), in_g2(stored({1}))));
  EXPECT_EQ(events[2].token_ids, tokens);
  EXPECT_THAT(events[2].tokens_hashes, ElementsAre(101));
}

TEST_F(KvManagerOffloadTest, g1_eviction_offload_holds_source_slot_until_complete) {
  TestManager mgr(options(1));
  attach_test_offload_engine(mgr, network, 100'000);
  EXPECT_EQ(mgr.use({1}), 1U);
  mgr.deref({1});
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 1}));
  EXPECT_EQ(mgr.use({2}), 0U);
  EXPECT_EQ(mgr->num_active_blocks(), 1U) << "a block that is read counts as active in G1";
  mgr.advance_to(microseconds(999));
  EXPECT_EQ(mgr->num_active_blocks(), 1U);
  EXPECT_EQ(mgr.use({2}), 0U);
  EXPECT_TRUE(mgr->waits_for_offload());
  ASSERT_TRUE(mgr.advance());
  EXPECT_EQ(mgr->num_active_blocks(), 0U);
  EXPECT_EQ(mgr.use({2}), 1U);
  EXPECT_FALSE(mgr->waits_for_offload());
  EXPECT_EQ(mgr->num_active_blocks(), 1U);
}

TEST_F(KvManagerOffloadTest, try_batch_swap_in_returns_no_hits_without_engine) {
  TestManager mgr(options(8));
  EXPECT_EQ(mgr.swap_in({1, 2, 3}).outcome, Outcome::kNothing);
  EXPECT_THAT(mgr->take_landed_swap_ins(), IsEmpty());
}

// Blocks 10 to 19 are one sequence, in order.
BlockKey chain(std::uint64_t id) {
  return id < 10 || id > 19 ? plh(id) : *BlockKey::make(id - 10, SequenceHash{id}, SequenceHash{id == 10 ? 0 : id - 1});
}

class SwapInTest : public KvManagerOffloadTest {};

TEST_F(SwapInTest, test_swap_in_registration_anchors_suffix_to_reused_prefix_parent) {
  TestManager mgr(options(8, 16), &chain);
  attach_test_offload_engine(mgr, network, 8);
  ASSERT_EQ(mgr.use({10, 11, 12, 13}), 4U);
  mgr.deref({13, 12});
  push_out(mgr, 6);
  mgr.deref({11, 10});
  mgr.sink.take();
  const SwapInStart started = mgr.swap_in({10, 11, 12, 13});
  ASSERT_EQ(started.outcome, Outcome::kScheduled);
  EXPECT_EQ(started.cached, 2U);
  EXPECT_EQ(started.plan.blocks(), 2U);
  EXPECT_EQ(mgr->num_active_blocks(), 4U) << "the reserved blocks and the prefix before them are in use meanwhile";
  EXPECT_THAT(mgr.sink.take(), IsEmpty());
  const TimePoint begin = mgr->offload_engine()->now();
  ASSERT_TRUE(mgr.advance());
  EXPECT_EQ(mgr->offload_engine()->now(), begin + milliseconds(2));
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({12, 13}, 11)));
  EXPECT_THAT(mgr->take_landed_swap_ins(), ElementsAre(started.id));
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{0, 0, 4})) << "swapped-in blocks are inactive";
}

TEST_F(SwapInTest, NoBlockIsResidentBeforeTheLoadHasEnded) {
  TestManager mgr(options(4), &chain);
  attach_test_offload_engine(mgr, network, 8);
  ASSERT_EQ(mgr.use({10, 11}), 2U);
  mgr.deref({11, 10});
  push_out(mgr, 4);
  mgr.sink.take();
  const TimePoint begin = mgr->offload_engine()->now();
  const SwapInStart started = mgr.swap_in({10, 11});
  ASSERT_EQ(started.outcome, Outcome::kScheduled);
  EXPECT_EQ(started.plan.blocks_from(0), 2U);
  mgr.advance_to(begin + microseconds(1999));
  EXPECT_FALSE(mgr->is_resident(chain(10)));
  EXPECT_THAT(mgr.sink.take(), IsEmpty());
  EXPECT_THAT(mgr->take_landed_swap_ins(), IsEmpty());
  mgr.advance_to(begin + milliseconds(2));
  EXPECT_TRUE(mgr->is_resident(chain(10)));
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({10, 11})));
  EXPECT_TRUE(mgr->offload_engine()->tier(0).contains(chain(10))) << "G2 keeps blocks that are read from it";
  EXPECT_EQ(mgr->offload_engine()->stats(0).loaded, 2U);
  EXPECT_THAT(mgr->take_landed_swap_ins(), ElementsAre(started.id));
  EXPECT_THAT(mgr->take_landed_swap_ins(), IsEmpty());
}

TEST_F(SwapInTest, BlocksThatWereComputedMeanwhileSplitTheEvents) {
  TestManager mgr(options(8), &chain);
  attach_test_offload_engine(mgr, network, 16);
  ASSERT_EQ(mgr.use({10, 11, 12, 13}), 4U);
  mgr.deref({13, 12, 11, 10});
  push_out(mgr, 8);
  const SwapInStart started = mgr.swap_in({10, 11, 12, 13});
  ASSERT_EQ(started.plan.blocks(), 4U);
  ASSERT_EQ(mgr.use({11}, 10), 1U);  // another request computes the second block meanwhile
  mgr.sink.take();
  ASSERT_TRUE(mgr.advance());
  EXPECT_THAT(mgr.sink.take(), ElementsAre(stored({10}), stored({12, 13}, 11)));
  EXPECT_EQ(mgr.refcount(11), 1U);
  EXPECT_EQ(mgr.counts(), (TestManager::Counts{1, 1, 3})) << "the block reserved for the second one is free again";
}

TEST_F(SwapInTest, LoadsShareTheLinkAndLandInTheOrderInWhichTheyEnd) {
  TestManager mgr(options(8), &chain);
  attach_test_offload_engine(mgr, network, 8);
  ASSERT_EQ(mgr.use({10, 11, 12, 1}), 4U);
  mgr.deref({1, 12, 11, 10});
  push_out(mgr, 8);
  const TimePoint begin = mgr->offload_engine()->now();
  const SwapInStart three = mgr.swap_in({10, 11, 12});
  const SwapInStart one = mgr.swap_in({1});
  EXPECT_EQ(mgr->next_event_time(), begin + milliseconds(2));
  mgr.advance_to(begin + milliseconds(4));
  EXPECT_THAT(mgr->take_landed_swap_ins(), ElementsAre(one.id, three.id));
}

TEST_F(SwapInTest, RejectsAnInconsistentUse) {
  TestManager mgr(options(8));
  attach_test_offload_engine(mgr, network, 8);
  const UniqueBlock block = UniqueBlock::full(SequenceHash{1});
  EXPECT_THAT(mgr->start_swap_in(Use{.blocks = {&block, 1}, .keys = {}}).error().message, HasSubstr("0 keys for 1"));
  const BlockKey other = plh(2);
  EXPECT_TRUE(mgr->start_swap_in(Use{.blocks = {&block, 1}, .keys = {&other, 1}})) << "any hash is accepted";
}

TEST_F(KvManagerOffloadTest, AnEngineIsAttachedOnceAndBeforeTheFirstBlock) {
  TestManager mgr(options(4));
  const OffloadOptions one{.tiers = {test_tier(network, CacheLevel::kG2, 4)}};
  EXPECT_THAT(mgr->attach_offload_engine({}, network).error().message, HasSubstr("without tiers"));
  ASSERT_EQ(mgr.use({1}), 1U);
  EXPECT_THAT(mgr->attach_offload_engine(one, network).error().message, HasSubstr("already has 1 blocks"));
  TestManager other(options(4));
  ASSERT_TRUE(other->attach_offload_engine(one, network));
  EXPECT_THAT(other->attach_offload_engine(one, network).error().message, HasSubstr("has an offload engine"));
}

TEST_F(KvManagerOffloadTest, OnlyTheSeedProfileHasTiers) {
  TestManager mgr({.max_capacity = 4, .block_size = 4, .profile = Profile::kStrict});
  const Status attached = mgr->attach_offload_engine({.tiers = {test_tier(network, CacheLevel::kG2, 4)}}, network);
  EXPECT_THAT(attached.error().message, HasSubstr("seed profile"));
  EXPECT_FALSE(mgr->has_offload_engine());
}

TEST_F(KvManagerOffloadTest, CanBeDestroyedWithTransfersInFlight) {
  const LinkId shared = *network.add_link({.bytes_per_second = 1'000'000'000});
  const OffloadOptions tiers{.block_bytes = kBlockBytes, .tiers = {{.capacity = 4, .down = shared, .up = shared}}};
  TestManager stays(options(2));
  ASSERT_TRUE(stays->attach_offload_engine(tiers, network));
  {
    TestManager goes(options(2));
    ASSERT_TRUE(goes->attach_offload_engine(tiers, network));
    ASSERT_EQ(goes.use({1}), 1U);
    goes.deref({1});
    push_out(goes, 2);
    ASSERT_EQ(goes.use({2}), 1U);
    goes.deref({2});
    ASSERT_EQ(goes.swap_in({1}).outcome, Outcome::kScheduled);
    ASSERT_EQ(goes.use({3}), 0U);
    ASSERT_GT(network.in_flight(), 0U);
    ASSERT_EQ(stays.use({1, 2}), 2U);
    stays.deref({2, 1});
    ASSERT_EQ(stays.use({3}), 0U);
  }
  ASSERT_TRUE(stays.advance());
  EXPECT_EQ(stays.use({3}), 1U);
}

}  // namespace
}  // namespace cairn::sim
