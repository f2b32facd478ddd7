// Several tiers and workers, and their events, through the manager that owns an engine.
#include "cairn/sim/offload_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

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

constexpr LinkOptions kOneGigabyte{.bytes_per_second = 1'000'000'000};

SeenEvent in_g3(SeenEvent event) { return in(CacheLevel::kG3, std::move(event)); }

class OffloadEngineTest : public ::testing::Test {
 protected:
  static KvManagerOptions options(std::uint32_t capacity) {
    return {.max_capacity = capacity, .block_size = 4, .eviction = PolicyKind::kLru, .profile = Profile::kSeed};
  }
  void attach(TestManager& manager, std::vector<OffloadTierOptions> tiers) {
    const Status attached =
        manager->attach_offload_engine({.block_bytes = kBlockBytes, .tiers = std::move(tiers)}, network);
    ASSERT_TRUE(attached) << attached.error().message;
  }
  // Puts a block into G1 and releases it.
  static void pass(TestManager& manager, std::uint64_t id) {
    while (manager.use({id}) == 0) {
      ASSERT_TRUE(manager.advance());
    }
    manager.deref({id});
  }

  LinkNetwork network;
};

TEST_F(OffloadEngineTest, BlocksThatACopyEvictsAreCopiedFurtherDownFirst) {
  TestManager mgr(options(1));
  attach(mgr, {test_tier(network, CacheLevel::kG2, 1), test_tier(network, CacheLevel::kG3, 1)});
  pass(mgr, 1);
  pass(mgr, 2);  // 1 is in G2
  mgr.sink.take();
  const TimePoint begin = mgr->offload_engine()->now();
  EXPECT_EQ(mgr.use({3}), 0U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({2}), in_g2(removed({1}))));
  EXPECT_EQ(mgr->offload_engine()->copies(), 2U);
  EXPECT_EQ(mgr->next_event_time(), begin + milliseconds(1));
  ASSERT_TRUE(mgr.advance());
  EXPECT_THAT(mgr.sink.take(), ElementsAre(in_g3(stored({1})))) << "2 may overwrite the block only now";
  EXPECT_EQ(mgr.use({3}), 0U);
  EXPECT_EQ(mgr->next_event_time(), begin + milliseconds(2));
  ASSERT_TRUE(mgr.advance());
  EXPECT_THAT(mgr.sink.take(), ElementsAre(in_g2(stored({2}))));
  EXPECT_EQ(mgr.use({3}), 1U);

  // Blocks evicted from the last tier are lost.
  mgr.deref({3});
  pass(mgr, 4);
  mgr.sink.take();
  EXPECT_EQ(mgr.use({5}), 0U);
  EXPECT_THAT(mgr.sink.take(), ElementsAre(removed({4}), in_g2(removed({3})), in_g3(removed({2}))));
}

TEST_F(OffloadEngineTest, ALoadCrossesEveryLinkUpToG1) {
  TestManager mgr(options(2));
  attach(mgr, {test_tier(network, CacheLevel::kG2, 1), test_tier(network, CacheLevel::kG3, 4)});
  pass(mgr, 1);
  push_out(mgr, 2);
  pass(mgr, 2);
  push_out(mgr, 2);  // 1 is in G3, 2 in G2
  mgr.sink.take();
  const TimePoint begin = mgr->offload_engine()->now();
  const SwapInStart started = mgr.swap_in({1, 2, 9});
  ASSERT_EQ(started.outcome, Outcome::kScheduled);
  EXPECT_THAT(started.plan.source, ElementsAre(1, 0));
  // 2 arrives after 1 ms. At that time 1 is in G2, and then alone on the second link.
  mgr.advance_to(begin + microseconds(1999));
  EXPECT_THAT(mgr.sink.take(), IsEmpty());
  mgr.advance_to(begin + milliseconds(2));
  EXPECT_THAT(mgr->take_landed_swap_ins(), ElementsAre(started.id));
  EXPECT_EQ(mgr->offload_engine()->stats(0).loaded, 1U);
  EXPECT_EQ(mgr->offload_engine()->stats(1).loaded, 1U);
  EXPECT_TRUE(mgr->is_resident(plh(1)));
  EXPECT_TRUE(mgr->is_resident(plh(2)));
  EXPECT_FALSE(mgr->offload_engine()->tier(0).contains(plh(1)))
      << "a load does not store blocks in the tiers that it passes";
}

TEST_F(OffloadEngineTest, TiersOfOneLevelAreOnePlaceInEvents) {
  TestManager mgr(options(1));
  attach(mgr, {test_tier(network, CacheLevel::kG4, 1), test_tier(network, CacheLevel::kG4, 4)});
  const auto on_g4 = [&] {
    finish_everything(mgr);
    std::vector<SeenEvent> events;
    for (SeenEvent& event : mgr.sink.take()) {
      if (event.tier == CacheLevel::kG4) {
        events.push_back(in(CacheLevel::kG1, std::move(event)));
      }
    }
    return events;
  };
  pass(mgr, 1);
  pass(mgr, 2);
  EXPECT_THAT(on_g4(), ElementsAre(stored({1})));
  pass(mgr, 3);
  EXPECT_THAT(on_g4(), ElementsAre(removed({1}), stored({1}), stored({2}))) << "between two tiers it is in neither";
  pass(mgr, 1);
  EXPECT_THAT(on_g4(), ElementsAre(removed({2}), stored({2}), stored({3})));
  pass(mgr, 4);
  EXPECT_THAT(on_g4(), ElementsAre(removed({3}), stored({3}))) << "1 was already in the lower tier of the level";
  EXPECT_TRUE(mgr->offload_engine()->tier(0).contains(plh(1)));
  EXPECT_TRUE(mgr->offload_engine()->tier(1).contains(plh(1)));
  pass(mgr, 5);
  EXPECT_THAT(on_g4(), ElementsAre(stored({4}))) << "1 left the upper tier, not the level";
  EXPECT_EQ(mgr->offload_engine()->stats(1).skipped, 1U);
}

TEST_F(OffloadEngineTest, CopiesBeyondTheLimitQueue) {
  TestManager mgr(options(4));
  ASSERT_TRUE(mgr->attach_offload_engine({.block_bytes = kBlockBytes,
                                          .batch_blocks = 1,
                                          .max_copies = 2,
                                          .tiers = {test_tier(network, CacheLevel::kG2, 8)}},
                                         network));
  for (const std::uint64_t id : {1, 2, 3, 4}) {
    pass(mgr, id);
  }
  ASSERT_EQ(mgr.use({5, 6, 7, 8}), 0U);
  EXPECT_EQ(mgr->offload_engine()->copies(), 4U);
  EXPECT_EQ(network.in_flight(), 2U);
  EXPECT_EQ(mgr->offload_engine()->tier(0).counts().active, 2U) << "a copy allocates blocks when it begins";
  mgr.sink.take();
  mgr.advance_to(milliseconds(2));  // two share the link
  EXPECT_THAT(mgr.sink.take(), ElementsAre(in_g2(stored({1})), in_g2(stored({2}))));
  mgr.advance_to(milliseconds(4));
  EXPECT_THAT(mgr.sink.take(), ElementsAre(in_g2(stored({3})), in_g2(stored({4}))));
  EXPECT_EQ(mgr.use({5, 6, 7, 8}), 4U);
}

TEST_F(OffloadEngineTest, ABlockInFlightIsNotCopiedTwice) {
  TestManager mgr(options(2));
  attach(mgr, {test_tier(network, CacheLevel::kG2, 8)});
  ASSERT_EQ(mgr.use({1}), 1U);
  mgr.deref({1});
  ASSERT_EQ(mgr.use({8}), 1U);  // stays in use
  ASSERT_EQ(mgr.use({2}), 0U);  // 1 is being copied down
  EXPECT_EQ(mgr.swap_in({1}).outcome, Outcome::kNothing) << "a block in flight is not in G2";
  mgr.deref({8});
  ASSERT_EQ(mgr.use({1}), 0U);  // 8 has to be evicted for it
  finish_everything(mgr);
  ASSERT_EQ(mgr.use({1}), 1U);
  EXPECT_EQ(mgr->offload_engine()->stats(0).copied, 2U);
  mgr.deref({1});
  push_out(mgr, 2);
  EXPECT_EQ(mgr->offload_engine()->stats(0).copied, 2U);
  EXPECT_EQ(mgr->offload_engine()->stats(0).skipped, 1U);
}

TEST_F(OffloadEngineTest, CopiesWithoutBytesTakeTheLatencyOnly) {
  TestManager mgr(options(1));
  ASSERT_TRUE(mgr->attach_offload_engine(
      {.block_bytes = 0, .tiers = {test_tier(network, CacheLevel::kG2, 4, {.latency = microseconds(30)})}}, network));
  mgr.advance_to(milliseconds(5));
  ASSERT_EQ(mgr.use({1}), 1U);
  mgr.deref({1});
  EXPECT_EQ(mgr.use({2}), 0U);
  EXPECT_EQ(mgr->next_event_time(), milliseconds(5) + microseconds(30));
  ASSERT_TRUE(mgr.advance());
  EXPECT_EQ(mgr.use({2}), 1U);
}

TEST_F(OffloadEngineTest, TwoWorkersShareALink) {
  const LinkId down = *network.add_link(kOneGigabyte);
  const LinkId up = *network.add_link(kOneGigabyte);
  const OffloadTierOptions tier{.level = CacheLevel::kG2, .capacity = 4, .down = down, .up = up};
  TestManager a(options(1));
  TestManager b(options(1));
  attach(a, {tier});
  attach(b, {tier});
  for (TestManager* worker : {&a, &b}) {
    ASSERT_EQ(worker->use({1}), 1U);
    worker->deref({1});
  }
  ASSERT_EQ(a.use({2}), 0U);
  EXPECT_EQ(a->next_event_time(), milliseconds(1));
  a.advance_to(microseconds(500));
  ASSERT_EQ(b.use({2}), 0U);
  EXPECT_EQ(a->next_event_time(), microseconds(1500)) << "b takes half of the link from now on";
  EXPECT_EQ(b->next_event_time(), milliseconds(2));
  b.sink.take();

  // a advances time for both. b's transfers have ended and are published; b notices at its next advance_to().
  a.advance_to(milliseconds(3));
  EXPECT_EQ(a.use({2}), 1U);
  EXPECT_EQ(b->next_event_time(), milliseconds(2)) << "b has not advanced since, and must not miss it";
  EXPECT_THAT(b.sink.take(), ElementsAre(in_g2(stored({1}))));
  b.advance_to(milliseconds(3));
  EXPECT_EQ(b->next_event_time(), std::nullopt);
  EXPECT_EQ(b.use({2}), 1U);
  EXPECT_EQ(network.stats(down).bytes, 2 * kBlockBytes);
  EXPECT_EQ(network.stats(up).bytes, 0U);
}

TEST_F(OffloadEngineTest, ALoadThatEndedInAnotherWorkersAdvanceLandsAtTheOwnAdvance) {
  const LinkId up = *network.add_link(kOneGigabyte);
  OffloadTierOptions tier{.level = CacheLevel::kG2, .capacity = 4, .down = *network.add_link(kOneGigabyte), .up = up};
  TestManager a(options(2));
  TestManager b(options(2));
  attach(a, {tier});
  attach(b, {tier});
  pass(b, 1);
  push_out(b, 2);
  const TimePoint begin = network.now();
  const SwapInStart started = b.swap_in({1});
  ASSERT_EQ(started.outcome, Outcome::kScheduled);
  a.advance_to(begin + milliseconds(7));
  EXPECT_EQ(b->next_event_time(), begin + milliseconds(1));
  EXPECT_FALSE(b->is_resident(plh(1)));
  b.advance_to(begin + milliseconds(7));
  EXPECT_TRUE(b->is_resident(plh(1)));
  EXPECT_THAT(b->take_landed_swap_ins(), ElementsAre(started.id));
}

TEST_F(OffloadEngineTest, RejectsBadOptions) {
  const auto message = [&](const OffloadOptions& offload) {
    TestManager mgr(options(4));
    return mgr->attach_offload_engine(offload, network).error().message;
  };
  const OffloadTierOptions good = test_tier(network, CacheLevel::kG3, 4);
  OffloadTierOptions above = good;
  above.level = CacheLevel::kG2;
  OffloadTierOptions device = good;
  device.level = CacheLevel::kG1;
  OffloadTierOptions unlinked = good;
  unlinked.up = LinkId{77};
  OffloadTierOptions empty = good;
  empty.capacity = 0;
  EXPECT_THAT(message({.tiers = {}}), HasSubstr("without tiers"));
  EXPECT_THAT(message({.tiers = {good, above}}), HasSubstr("G2 cannot be below one of level G3"));
  EXPECT_THAT(message({.tiers = {device}}), HasSubstr("G1 cannot be below"));
  EXPECT_THAT(message({.tiers = {unlinked}}), HasSubstr("not in the network"));
  EXPECT_THAT(message({.tiers = {empty}}), HasSubstr("capacity"));
  EXPECT_THAT(message({.batch_blocks = 0, .tiers = {good}}), HasSubstr("move nothing"));
  EXPECT_THAT(message({.max_copies = 0, .tiers = {good}}), HasSubstr("move nothing"));
  EXPECT_THAT(message({.block_bytes = Link::kMaxTransferBytes, .tiers = {good}}), HasSubstr("in one transfer"));
}

}  // namespace
}  // namespace cairn::sim
