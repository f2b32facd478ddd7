// Failures during a load: a shorter prefix, never a hole, never wrong bytes.
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

RigOptions faulty(LoadLink link, std::vector<FaultRule> rules) {
  RigOptions options;
  options.faults[index_of(link)] = std::move(rules);
  return options;
}

TEST(OnboarderFaults, ABlockThatFailsEndsThePrefix) {
  Rig rig(faulty(LoadLink::kHostToDevice, {{.fault = Fault::kFail, .at = 6}}));
  const Keys keys = chain(1, 12);
  (void)rig.host().put(keys);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 5U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(loaded->result.why, HasSubstr("injected"));
  EXPECT_FALSE(rig.device().pool().contains(keys[5]));
  EXPECT_TRUE(rig.device().pool().contains(keys[6])) << "it did arrive";
  loaded->result = {};
  rig.expect_drained();
}

TEST(OnboarderFaults, WrongBytesEndThePrefixAndAreFoundNoMore) {
  Rig rig;
  const Keys keys = chain(1, 12);
  (void)rig.host().put(keys);
  rig.host().corrupt(keys[4]);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 4U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(loaded->result.why, HasSubstr("other bytes"));
  EXPECT_FALSE(rig.host().pool().contains(keys[4]));
  EXPECT_EQ(rig.onboarder().locate(keys).blocks(), 4U);
}

TEST(OnboarderFaults, AnotherTierHelpsTheNextLoadWhereBytesWereWrong) {
  Rig rig;
  const Keys keys = chain(1, 8);
  (void)rig.host().put(keys);
  (void)rig.disk().put(keys);
  rig.host().corrupt(keys[4]);
  (void)rig.load(keys);
  rig.run();
  const auto again = rig.load(keys);
  rig.run();
  EXPECT_EQ(again->result.prefix, 8U);
  EXPECT_EQ(again->result.from[2], 1U);
  EXPECT_TRUE(rig.is_right(again->result, keys));
}

TEST(OnboarderFaults, TheFirstHopFailsInTheMiddle) {
  Rig rig(faulty(LoadLink::kDiskToHost, {{.fault = Fault::kFail, .at = 10}}));
  const Keys keys = chain(1, 60);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 9U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(loaded->result.why, HasSubstr("injected"));
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 9U) << "blocks after the hole are not loaded";
  loaded->result = {};
  rig.expect_drained();
}

TEST(OnboarderFaults, TheSecondHopFailsInTheMiddle) {
  Rig rig(faulty(LoadLink::kHostToDevice, {{.fault = Fault::kFail, .at = 3}}));
  const Keys keys = chain(1, 20);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 2U);
  EXPECT_EQ(rig.host().pool().count_prefix(keys), 20U);
  loaded->result = {};
  rig.expect_drained();
}

TEST(OnboarderFaults, BytesThatChangeOnTheWayAreNotServed) {
  Rig rig(faulty(LoadLink::kDiskToHost, {{.fault = Fault::kCorruptInFlight, .at = 5}}));
  const Keys keys = chain(1, 8);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 4U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(rig.device().wrong_blocks(), IsEmpty());
  EXPECT_THAT(rig.host().wrong_blocks(), IsEmpty());
}

TEST(OnboarderFaults, BehindAHoleNothingIsWaitedFor) {
  RigOptions options = faulty(LoadLink::kHostToDevice, {{.fault = Fault::kFail, .at = 1}});
  options.faults[index_of(LoadLink::kDiskToDevice)] = {{.fault = Fault::kHang, .at = 1}};
  options.onboard.through_host = false;
  Rig rig(options);
  const Keys keys = chain(1, 6);
  (void)rig.host().put(first_of(keys, 2));
  (void)rig.disk().put(some_of(keys, 2, 4));
  (void)rig.host().put(some_of(keys, 4, 6));
  const auto loaded = rig.load(keys);
  rig.run(milliseconds(100));
  ASSERT_TRUE(loaded->is_done);
  EXPECT_LE(loaded->at, milliseconds(2));
  EXPECT_EQ(loaded->result.prefix, 0U);
  rig.release_hung();
  rig.run();
  EXPECT_EQ(rig.device().pool().count_prefix(some_of(keys, 1, 6)), 5U) << "transfers that had begun arrived";
}

TEST(OnboarderFaults, ATierThatIsOutIsAMissAndComesBack) {
  // The first three copies fail, and the fourth is the trial.
  RigOptions options =
      faulty(LoadLink::kDiskToDevice,
             {{.fault = Fault::kFail, .at = 1}, {.fault = Fault::kFail, .at = 2}, {.fault = Fault::kFail, .at = 3}});
  options.onboard.through_host = false;
  Rig rig(options);
  const Keys keys = chain(1, 1);
  (void)rig.disk().put(keys);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rig.onboarder().locate(keys).blocks(), 1U);
    const auto failed = rig.load(keys);
    rig.run();
    EXPECT_EQ(failed->result.prefix, 0U);
    EXPECT_THAT(failed->result.why, HasSubstr("injected"));
  }
  ASSERT_FALSE(rig.disk().tier().is_up(TierUse::kReading));
  EXPECT_EQ(rig.onboarder().locate(keys).blocks(), 0U);
  const auto missed = rig.load(keys);
  EXPECT_TRUE(missed->is_done);
  EXPECT_EQ(missed->result.prefix, 0U);
  rig.clock().advance(seconds(2));
  EXPECT_EQ(rig.onboarder().locate(keys).blocks(), 1U);
  const auto trial = rig.load(keys);
  rig.run();
  EXPECT_EQ(trial->result.prefix, 1U);
  EXPECT_TRUE(rig.disk().tier().is_up(TierUse::kReading));
}

TEST(OnboarderFaults, WhatIsRefusedCutsItsStretchAndAllAfterIt) {
  // Suspended, and due for a trial: the first copy is the trial, the second is refused.
  RigOptions options = faulty(LoadLink::kDiskToDevice, {{.fault = Fault::kFail, .at = 1, .every = 1}});
  options.onboard.through_host = false;
  Rig rig(options);
  const Keys keys = chain(1, 6);
  (void)rig.disk().put(first_of(keys, 1));
  (void)rig.host().put(some_of(keys, 1, 3));
  (void)rig.disk().put(some_of(keys, 3, 6));
  for (int i = 0; i < 3; ++i) {
    rig.disk().tier().failed(TierUse::kReading, "broken");
  }
  rig.clock().advance(seconds(2));
  (void)rig.device().put(first_of(keys, 1));
  const auto trial = rig.load(keys);
  EXPECT_FALSE(trial->is_done);
  const auto refused = rig.load(first_of(keys, 4), milliseconds(9000));
  rig.run();
  EXPECT_EQ(trial->result.prefix, 3U);
  EXPECT_EQ(refused->result.prefix, 3U);
  EXPECT_THAT(trial->result.why, HasSubstr("injected"));
}

}  // namespace
}  // namespace cairn
