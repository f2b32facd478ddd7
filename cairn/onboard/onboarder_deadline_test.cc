// Deadlines, cancelling and shutdown.
#include "cairn/onboard/onboarder_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::chain;
using testing::first_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Keys;
using testing::Rig;
using testing::RigOptions;
using testing::some_of;

RigOptions hanging(LoadLink link, std::uint64_t at) {
  RigOptions options;
  options.faults[index_of(link)] = {{.fault = Fault::kHang, .at = at}};
  return options;
}

TEST(OnboarderDeadline, AHungCopyEndsTheLoadInTimeWithWhatHasArrived) {
  Rig rig(hanging(LoadLink::kHostToDevice, 8));
  const Keys keys = chain(1, 12);
  (void)rig.host().put(keys);
  const auto loaded = rig.load(keys, milliseconds(100));
  rig.run(milliseconds(98));
  EXPECT_FALSE(loaded->is_done);
  rig.run(milliseconds(200));
  ASSERT_TRUE(loaded->is_done);
  EXPECT_LE(loaded->at, milliseconds(100));
  EXPECT_EQ(loaded->result.prefix, 7U) << "of the same copy";
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(loaded->result.why, HasSubstr("deadline"));
  EXPECT_EQ(rig.onboarder().status().expired, 1U);
  // The block that hangs may still be written to, and stays quarantined until it has settled.
  EXPECT_EQ(rig.device().pool().counts().quarantined, 1U);
  EXPECT_EQ(rig.host().pool().counts().pinned, 12U);
  loaded->result = {};
  rig.release_hung();
  rig.run();
  EXPECT_EQ(rig.device().pool().counts().quarantined, 0U);
  rig.expect_drained();
}

TEST(OnboarderDeadline, CopiesThatArrivedBeforeItAreInTheResult) {
  // A part from the host, then a part from a disk that hangs.
  RigOptions options = hanging(LoadLink::kDiskToDevice, 1);
  options.onboard.through_host = false;
  Rig rig(options);
  const Keys keys = chain(1, 12);
  (void)rig.host().put(first_of(keys, 7));
  (void)rig.disk().put(some_of(keys, 7, 12));
  const auto loaded = rig.load(keys, milliseconds(100));
  rig.run(milliseconds(150));
  EXPECT_EQ(loaded->result.prefix, 7U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_LE(loaded->at, milliseconds(100));
}

TEST(OnboarderDeadline, PumpEndsALoadThoughItsCopyDoesNotAnswer) {
  Rig rig({.ways = {.latency = seconds(10)}});
  const Keys keys = chain(1, 3);
  (void)rig.host().put(keys);
  const auto loaded = rig.load(keys, seconds(1));
  EXPECT_EQ(rig.onboarder().next_time(), seconds(1) - milliseconds(1)) << "when its copies must have ended";
  rig.clock().advance(seconds(1));
  EXPECT_TRUE(rig.onboarder().pump());
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 0U);
  EXPECT_FALSE(rig.onboarder().is_idle()) << "the copy is still in flight";
  EXPECT_FALSE(rig.onboarder().pump());
  rig.run();
  rig.expect_drained();
}

TEST(OnboarderDeadline, TheOptionsSayItWhereTheRequestDoesNot) {
  RigOptions options = hanging(LoadLink::kHostToDevice, 1);
  options.onboard.deadline = milliseconds(70);
  Rig rig(options);
  (void)rig.host().put(chain(1, 3));
  const auto loaded = rig.load(chain(1, 3));
  rig.run(seconds(1));
  EXPECT_LE(loaded->at, milliseconds(70));
  EXPECT_GE(loaded->at, milliseconds(69));
}

TEST(OnboarderDeadline, OneThatHasPassedBeginsNothing) {
  Rig rig;
  rig.clock().advance(seconds(1));
  (void)rig.host().put(chain(1, 3));
  (void)rig.device().put(chain(1, 2));
  const auto loaded = rig.load(chain(1, 3), milliseconds(1));
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 2U);
  EXPECT_EQ(rig.link(LoadLink::kHostToDevice).meter().totals().copies, 0U);
}

TEST(OnboarderDeadline, AfterTheFirstHopNothingMoreIsBegun) {
  Rig rig({.ways = {.latency = milliseconds(60)}});
  const Keys keys = chain(1, 3);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys, milliseconds(100));
  rig.run();
  EXPECT_LE(loaded->at, milliseconds(100));
  EXPECT_EQ(loaded->result.prefix, 0U);
  EXPECT_EQ(rig.host().pool().count_prefix(keys), 3U) << "as far as it got";
  rig.expect_drained();
}

TEST(OnboarderCancel, WhatHasNotBegunIsNotBegun) {
  Rig rig({.onboard = {.through_host = false}, .ways = {.latency = milliseconds(10)}});
  const Keys keys = chain(1, 6);
  for (std::uint32_t i = 0; i < 6; i += 2) {
    (void)rig.host().put(some_of(keys, i, i + 1));
    (void)rig.disk().put(some_of(keys, i + 1, i + 2));
  }
  const auto loaded = rig.load(keys);
  rig.run(milliseconds(5));
  rig.onboarder().cancel(loaded->id);
  rig.onboarder().cancel(loaded->id);
  rig.run();
  ASSERT_TRUE(loaded->is_done);
  EXPECT_LE(loaded->at, milliseconds(20));
  EXPECT_LE(loaded->result.prefix, 2U);
  EXPECT_THAT(loaded->result.why, HasSubstr("cancelled"));
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  loaded->result = {};
  rig.expect_drained();
}

TEST(OnboarderCancel, QueuedPartsEndAtOnce) {
  Rig rig({.ways = {.latency = seconds(1), .limit = 1}});
  (void)rig.host().put(chain(1, 2));
  (void)rig.host().put(chain(2, 2));
  const auto first = rig.load(chain(1, 2));
  const auto second = rig.load(chain(2, 2));
  rig.onboarder().cancel(second->id);
  EXPECT_TRUE(second->is_done);
  EXPECT_FALSE(first->is_done);
  rig.onboarder().cancel(LoadId{12345});
  rig.run();
  EXPECT_EQ(first->result.prefix, 2U);
}

TEST(OnboarderCancel, BetweenTheHops) {
  Rig rig({.ways = {.latency = milliseconds(10)}});
  const Keys keys = chain(1, 40);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys);
  rig.run(milliseconds(9));
  rig.onboarder().cancel(loaded->id);
  rig.run();
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 0U);
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 0U);
  rig.expect_drained();
}

TEST(OnboarderEnd, EndsTransfersInFlightAndTakesNothingMore) {
  Rig rig({.ways = {.latency = milliseconds(10), .limit = 2}});
  std::vector<std::shared_ptr<testing::Loaded>> loads;
  for (std::uint64_t name = 1; name <= 5; ++name) {
    (void)rig.host().put(chain(name, 4));
    loads.push_back(rig.load(chain(name, 4)));
  }
  rig.onboarder().end();
  EXPECT_FALSE(rig.onboarder().is_idle());
  const Result<LoadId> refused = rig.onboarder().load({.keys = chain(1, 4)});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  rig.run();
  for (const auto& load : loads) {
    EXPECT_TRUE(load->is_done);
    load->result = {};
  }
  rig.expect_drained();
}

}  // namespace
}  // namespace cairn
