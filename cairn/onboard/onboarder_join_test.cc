// Loads of blocks that other loads already bring.
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
using testing::Loaded;
using testing::Rig;
using testing::RigOptions;
using testing::some_of;

class OnboarderJoinTest : public ::testing::Test {
 protected:
  // Two loads of the same blocks, the second with one more of its own.
  void begin(Rig& rig, std::optional<TimePoint> deadline_of_first = {}) {
    (void)rig.host().put(keys_);
    first_ = rig.load(first_of(keys_, 7), deadline_of_first);
    second_ = rig.load(keys_);
  }

  const Keys keys_ = chain(1, 8);
  std::shared_ptr<Loaded> first_;
  std::shared_ptr<Loaded> second_;
};

TEST_F(OnboarderJoinTest, EachKeyIsCopiedOnce) {
  Rig rig;
  begin(rig);
  rig.run();
  EXPECT_EQ(first_->result.prefix, 7U);
  EXPECT_EQ(second_->result.prefix, 8U);
  EXPECT_TRUE(rig.is_right(second_->result, keys_));
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 8U);
  EXPECT_EQ(rig.onboarder().status().joined, 7U);
  EXPECT_EQ(rig.host().take_load_uses(), 7U + 8U) << "each load is a use";
  EXPECT_EQ(rig.device().pool().stats().deduplicated, 0U);
}

TEST_F(OnboarderJoinTest, WhatTheFirstCouldNotBringTheSecondTriesItself) {
  RigOptions options;
  options.faults[0] = {{.fault = Fault::kFail, .at = 3}};
  Rig rig(options);
  begin(rig);
  rig.run();
  EXPECT_EQ(first_->result.prefix, 2U);
  EXPECT_EQ(second_->result.prefix, 8U) << second_->result.why;
  EXPECT_TRUE(rig.is_right(second_->result, keys_));
}

TEST_F(OnboarderJoinTest, TheFirstIsCancelled) {
  Rig rig({.ways = {.latency = milliseconds(1), .limit = 1}});
  (void)rig.host().put(chain(2, 2));
  const auto other = rig.load(chain(2, 2));  // has the only place
  begin(rig);
  rig.onboarder().cancel(first_->id);
  EXPECT_TRUE(first_->is_done);
  rig.run();
  EXPECT_EQ(first_->result.prefix, 0U);
  EXPECT_EQ(second_->result.prefix, 8U) << second_->result.why;
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 10U);
}

TEST_F(OnboarderJoinTest, TheFirstExpires) {
  RigOptions options;
  options.faults[0] = {{.fault = Fault::kHang, .at = 2}};
  Rig rig(options);
  begin(rig, milliseconds(100));
  rig.run(seconds(1));
  EXPECT_LE(first_->at, milliseconds(100));
  EXPECT_EQ(second_->result.prefix, 8U) << second_->result.why;
  EXPECT_LT(second_->at, milliseconds(110));
  EXPECT_TRUE(rig.is_right(second_->result, keys_));
}

TEST_F(OnboarderJoinTest, TheSecondExpiresWhileItWaits) {
  Rig rig({.ways = {.latency = seconds(1)}});
  (void)rig.host().put(keys_);
  first_ = rig.load(keys_);
  second_ = rig.load(keys_, milliseconds(100));
  rig.run();
  EXPECT_LE(second_->at, milliseconds(100));
  EXPECT_GE(second_->at, milliseconds(99));
  EXPECT_EQ(second_->result.prefix, 0U);
  EXPECT_EQ(first_->result.prefix, 8U);
}

TEST_F(OnboarderJoinTest, ThereIsNoRoomWhereItHasToBeTriedAgain) {
  RigOptions options{.blocks = {8, 64, 64}};
  options.faults[0] = {{.fault = Fault::kHang, .at = 1, .every = 1}};
  Rig rig(options);
  begin(rig, milliseconds(100));
  rig.run(seconds(1));
  ASSERT_TRUE(second_->is_done);
  EXPECT_EQ(second_->result.prefix, 0U);
  EXPECT_THAT(second_->result.why, HasSubstr("no room"));
}

TEST_F(OnboarderJoinTest, ABlockWithWrongBytesIsNotRetriedForever) {
  Rig rig;
  (void)rig.host().put(keys_);
  rig.host().corrupt(keys_[4]);
  first_ = rig.load(keys_);
  second_ = rig.load(keys_);
  rig.run();
  EXPECT_EQ(first_->result.prefix, 4U);
  EXPECT_EQ(second_->result.prefix, 4U);
  EXPECT_THAT(second_->result.why, HasSubstr("gone"));
  EXPECT_LE(rig.link(LoadLink::kHostToDevice).meter().totals().copies, 2U);
}

TEST_F(OnboarderJoinTest, TwoLoadsFromDiskShareBothHops) {
  Rig rig;
  (void)rig.disk().put(keys_);
  first_ = rig.load(keys_);
  second_ = rig.load(keys_);
  rig.run();
  EXPECT_EQ(second_->result.prefix, 8U);
  EXPECT_EQ(second_->result.from[2], 8U);
  EXPECT_EQ(rig.disk().take_load_uses(), 2 * 8U);
  EXPECT_EQ(rig.copied(LoadLink::kDiskToHost), 8U);
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 8U);
}

TEST_F(OnboarderJoinTest, ALoadTakesOverWhatAPrefetchBrings) {
  Rig rig;
  (void)rig.disk().put(keys_);
  std::optional<std::uint32_t> fetched;
  ASSERT_TRUE(rig.onboarder()
                  .prefetch({.keys = keys_, .deadline = testing::kNever, .done = [&](std::uint32_t n) { fetched = n; }})
                  .has_value());
  first_ = rig.load(keys_);
  rig.run();
  EXPECT_EQ(fetched, 8U);
  EXPECT_EQ(first_->result.prefix, 8U);
  EXPECT_TRUE(rig.is_right(first_->result, keys_));
  EXPECT_EQ(rig.copied(LoadLink::kDiskToHost), 8U);
}

TEST_F(OnboarderJoinTest, APrefetchWaitsForWhatALoadBrings) {
  Rig rig;
  (void)rig.disk().put(keys_);
  first_ = rig.load(first_of(keys_, 5));
  std::optional<std::uint32_t> fetched;
  ASSERT_TRUE(rig.onboarder()
                  .prefetch({.keys = keys_, .deadline = testing::kNever, .done = [&](std::uint32_t n) { fetched = n; }})
                  .has_value());
  rig.run();
  EXPECT_EQ(fetched, 8U);
  EXPECT_EQ(rig.copied(LoadLink::kDiskToHost), 8U);
}

TEST_F(OnboarderJoinTest, HoweverManyGiveUpBeforeItALoadBringsWhatItCan) {
  Rig rig({.ways = {.latency = milliseconds(1), .limit = 1}});
  (void)rig.host().put(chain(2, 2));
  const auto other = rig.load(chain(2, 2));  // has the only place
  (void)rig.host().put(keys_);
  std::vector<std::shared_ptr<Loaded>> loads;
  for (int i = 0; i < 8; ++i) {
    loads.push_back(rig.load(keys_));
  }
  for (int i = 0; i < 7; ++i) {
    rig.onboarder().cancel(loads[static_cast<std::size_t>(i)]->id);
  }
  rig.run();
  EXPECT_EQ(loads.back()->result.prefix, 8U) << loads.back()->result.why;
  EXPECT_TRUE(rig.is_right(loads.back()->result, keys_));
}

TEST_F(OnboarderJoinTest, ManyLoadsOfWhatOneFailsToBring) {
  // Every copy of the first block fails for a while: each load tries once, none forever.
  RigOptions options;
  options.faults[0] = {{.fault = Fault::kFail, .at = 1, .every = 1}};
  Rig rig(options);
  (void)rig.host().put(first_of(keys_, 1));
  std::vector<std::shared_ptr<Loaded>> loads;
  for (int i = 0; i < 20; ++i) {
    loads.push_back(rig.load(first_of(keys_, 1)));
  }
  rig.run();
  for (const auto& load : loads) {
    EXPECT_TRUE(load->is_done);
    EXPECT_EQ(load->result.prefix, 0U);
    EXPECT_NE(load->result.why, "");
    EXPECT_LT(load->at, seconds(1));
  }
  rig.expect_drained();
}

}  // namespace
}  // namespace cairn
