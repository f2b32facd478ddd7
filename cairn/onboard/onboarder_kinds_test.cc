// The other kinds of loads: into the engine's blocks, into given blocks, and prefetches.
#include "cairn/onboard/onboarder_testing.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::chain;
using ::testing::ElementsAre;
using testing::first_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::joined;
using testing::Keys;
using testing::kNever;
using testing::Loaded;
using testing::Rig;
using testing::RigOptions;
using testing::some_of;

class OnboarderBlocksTest : public ::testing::Test {
 protected:
  std::shared_ptr<Loaded> load_into(Rig& rig, const Keys& keys, std::optional<TimePoint> deadline = {}) {
    block_ids_.clear();
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      block_ids_.push_back(BlockId{60 - i});
    }
    auto loaded = std::make_shared<Loaded>();
    held_ = std::make_shared<int>(1);
    const Result<LoadId> id = rig.onboarder().load_into({.block_ids = block_ids_, .held = held_},
                                                        {.keys = keys, .deadline = deadline, .done = rig.note(loaded)});
    EXPECT_TRUE(id.has_value());
    return loaded;
  }
  bool are_filled(Rig& rig, const Keys& keys, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!rig.device().holds(block_ids_[i], keys[i])) {
        return false;
      }
    }
    return true;
  }

  std::vector<BlockId> block_ids_;
  std::shared_ptr<int> held_;
};

TEST_F(OnboarderBlocksTest, EveryLoadIsOneUseInTheTierItReads) {
  for (const bool through_host : {true, false}) {
    Rig rig({.onboard = {.through_host = through_host}, .engine_block_ids = true});
    const Keys keys = chain(1, 6);
    (void)rig.host().put(first_of(keys, 4));
    (void)rig.disk().put(some_of(keys, 2, 6));
    for (std::uint32_t i = 0; i < 3; ++i) {
      const auto loaded = load_into(rig, keys);
      rig.run();
      ASSERT_EQ(loaded->result.prefix, 6U);
      EXPECT_EQ(rig.registry().frequency(keys[0]), i + 2) << "and one for its registration";
      EXPECT_EQ(rig.registry().frequency(keys[5]), i + 2);
    }
    // What was read from disk through the host is in the host afterwards.
    EXPECT_EQ(rig.disk().take_load_uses(), through_host ? 2U : 6U);
    EXPECT_EQ(rig.host().take_load_uses(), through_host ? 16U : 12U);
    rig.expect_drained();
  }
}

TEST_F(OnboarderBlocksTest, OverlappingLoadsAreOneUseEach) {
  Rig rig({.engine_block_ids = true});
  const Keys keys = chain(1, 4);
  (void)rig.host().put(keys);
  const auto first = load_into(rig, keys);
  const auto second = load_into(rig, first_of(keys, 2));
  rig.run();
  EXPECT_EQ(first->result.prefix + second->result.prefix, 6U);
  EXPECT_EQ(rig.host().take_load_uses(), 6U);
}

TEST_F(OnboarderBlocksTest, AreFilledFromAllTiers) {
  for (const bool through_host : {true, false}) {
    Rig rig({.onboard = {.through_host = through_host}, .engine_block_ids = true});
    const Keys keys = chain(1, 50);
    (void)rig.host().put(first_of(keys, 4));
    (void)rig.disk().put(some_of(keys, 2, 45));
    const auto loaded = load_into(rig, keys);
    EXPECT_GT(held_.use_count(), 1);
    rig.run();
    EXPECT_EQ(loaded->result.prefix, 45U);
    EXPECT_THAT(loaded->result.from, ElementsAre(0U, 4U, 41U, 0U));
    EXPECT_TRUE(loaded->result.blocks.empty());
    EXPECT_TRUE(are_filled(rig, keys, 45));
    EXPECT_EQ(held_.use_count(), 1) << "no copy touches them";
    EXPECT_EQ(rig.host().pool().count_prefix(keys), through_host ? 45U : 4U);
    rig.expect_drained();
  }
}

TEST_F(OnboarderBlocksTest, AFailedBlockEndsThePrefix) {
  RigOptions options{.engine_block_ids = true};
  options.faults[0] = {{.fault = Fault::kFail, .at = 4}};
  Rig rig(options);
  const Keys keys = chain(1, 10);
  (void)rig.host().put(keys);
  const auto loaded = load_into(rig, keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 3U);
  EXPECT_TRUE(are_filled(rig, keys, 3));
  EXPECT_THAT(loaded->result.why, HasSubstr("injected"));
}

TEST_F(OnboarderBlocksTest, WrongBytesEndThePrefix) {
  Rig rig({.engine_block_ids = true});
  const Keys keys = chain(1, 10);
  (void)rig.host().put(keys);
  rig.host().corrupt(keys[6]);
  const auto loaded = load_into(rig, keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 6U);
}

TEST_F(OnboarderBlocksTest, AreTheCopysUntilItHasSettled) {
  RigOptions options{.engine_block_ids = true};
  options.faults[0] = {{.fault = Fault::kHang, .at = 4}};
  Rig rig(options);
  const Keys keys = chain(1, 10);
  (void)rig.host().put(keys);
  const auto loaded = load_into(rig, keys, milliseconds(50));
  rig.run(seconds(1));
  EXPECT_LE(loaded->at, milliseconds(50));
  EXPECT_EQ(loaded->result.prefix, 3U);
  EXPECT_GT(held_.use_count(), 1) << "a late copy may still write to them";
  rig.release_hung();
  rig.run();
  EXPECT_EQ(held_.use_count(), 1);
  rig.expect_drained();
}

TEST_F(OnboarderBlocksTest, EveryoneGetsHisOwnCopyButTheHostOne) {
  Rig rig({.engine_block_ids = true});
  const Keys keys = chain(1, 4);
  (void)rig.disk().put(keys);
  const auto first = load_into(rig, keys);
  const auto second = load_into(rig, keys);
  rig.run();
  EXPECT_EQ(first->result.prefix, 4U);
  EXPECT_EQ(second->result.prefix, 4U);
  EXPECT_EQ(rig.copied(LoadLink::kDiskToHost), 4U);
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 8U);
}

TEST_F(OnboarderBlocksTest, OneForEachKey) {
  Rig rig({.engine_block_ids = true});
  EXPECT_FALSE(rig.onboarder().load_into({.block_ids = {BlockId{1}}}, {.keys = chain(1, 2)}).has_value());
  EXPECT_FALSE(rig.onboarder().load({.keys = chain(1, 2)}).has_value());
}

class OnboardGivenTest : public ::testing::Test {
 protected:
  void onboard(Rig& rig, ImmutableBlocks blocks, std::optional<MutableBlocks> targets = {}) {
    const Result<LoadId> id = rig.onboarder().onboard({.blocks = std::move(blocks),
                                                       .targets = std::move(targets),
                                                       .deadline = kNever,
                                                       .done = [this](Result<ImmutableBlocks>&& result) {
                                                         EXPECT_FALSE(result_.has_value());
                                                         result_.emplace(std::move(result));
                                                       }});
    EXPECT_TRUE(id.has_value()) << (id.has_value() ? "" : id.error().to_string());
  }
  bool is_right(Rig& rig, const Keys& keys) {
    bool right = (*result_)->size() == keys.size();
    for (std::uint32_t i = 0; right && i < keys.size(); ++i) {
      right = (*result_)->key(i) == keys[i] && rig.device().holds((*result_)->block_ids()[i], keys[i]);
    }
    return right;
  }

  const Keys keys_ = chain(1, 10);
  std::optional<Result<ImmutableBlocks>> result_;
};

TEST_F(OnboardGivenTest, IntoBlocksOfItsOwn) {
  Rig rig;
  onboard(rig, rig.host().put(keys_));
  rig.run();
  ASSERT_TRUE(result_.has_value() && result_->has_value());
  EXPECT_TRUE(is_right(rig, keys_));
  result_.reset();
  rig.expect_drained();
}

TEST_F(OnboardGivenTest, TheLookupThatFoundThemWasTheirUse) {
  Rig rig;
  onboard(rig, rig.host().put(keys_));
  rig.run();
  ASSERT_TRUE(result_.has_value() && result_->has_value());
  EXPECT_EQ(rig.host().take_load_uses(), 0U);
  result_.reset();
}

TEST_F(OnboardGivenTest, IntoGivenOnes) {
  for (const CacheLevel from : {CacheLevel::kG2, CacheLevel::kG3}) {
    Rig rig;
    result_.reset();
    MutableBlocks targets = *rig.device().pool().allocate(10);
    const std::vector<BlockId> block_ids(targets.block_ids().begin(), targets.block_ids().end());
    onboard(rig, (from == CacheLevel::kG2 ? rig.host() : rig.disk()).put(keys_), std::move(targets));
    rig.run();
    ASSERT_TRUE(result_.has_value() && result_->has_value());
    EXPECT_TRUE(is_right(rig, keys_));
    EXPECT_TRUE(std::ranges::equal((*result_)->block_ids(), block_ids));
    EXPECT_EQ(rig.host().pool().count_prefix(keys_), 10U) << "through the host, or from the host";
    result_.reset();
    rig.expect_drained();
  }
}

TEST_F(OnboardGivenTest, GivenOnesThatAreNotNeededAreFree) {
  Rig rig;
  (void)rig.device().put(some_of(keys_, 3, 6));
  const auto before = rig.load(first_of(keys_, 2));
  ImmutableBlocks blocks = rig.host().put(keys_);
  const auto joined_load = rig.load(first_of(keys_, 2));
  onboard(rig, std::move(blocks), *rig.device().pool().allocate(10));
  rig.run();
  ASSERT_TRUE(result_.has_value() && result_->has_value());
  EXPECT_TRUE(is_right(rig, keys_));
  EXPECT_EQ(rig.copied(LoadLink::kHostToDevice), 7U);
  result_.reset();
  joined_load->result = {};
  rig.expect_drained();
}

TEST_F(OnboardGivenTest, AHoleIsPassedOver) {
  RigOptions options;
  options.faults[0] = {{.fault = Fault::kFail, .at = 4}};
  Rig rig(options);
  onboard(rig, rig.host().put(keys_));
  rig.run();
  ASSERT_TRUE(result_.has_value() && result_->has_value());
  EXPECT_TRUE(is_right(rig, joined(first_of(keys_, 3), some_of(keys_, 4, 10))));
  result_.reset();
}

TEST_F(OnboardGivenTest, AHoleInTheFirstHopIsPassedOverToo) {
  RigOptions options;
  options.faults[2] = {{.fault = Fault::kFail, .at = 4}};
  Rig rig(options);
  onboard(rig, rig.disk().put(keys_));
  rig.run();
  ASSERT_TRUE(result_.has_value() && result_->has_value());
  EXPECT_TRUE(is_right(rig, joined(first_of(keys_, 3), some_of(keys_, 4, 10))));
  result_.reset();
  rig.expect_drained();
}

TEST_F(OnboardGivenTest, SaysWhyNothingCame) {
  RigOptions options;
  options.faults[0] = {{.fault = Fault::kFail, .at = 1, .every = 1}};
  Rig rig(options);
  onboard(rig, rig.host().put(keys_));
  rig.run();
  ASSERT_TRUE(result_.has_value());
  ASSERT_FALSE(result_->has_value());
  EXPECT_THAT(result_->error().message, HasSubstr("injected"));
  result_.reset();
  rig.link(LoadLink::kHostToDevice).pause(true);
  onboard(rig, rig.host().pool().match_prefix(keys_));
  ASSERT_TRUE(result_.has_value());
  ASSERT_FALSE(result_->has_value());
  EXPECT_THAT(result_->error().message, HasSubstr("no tier"));
  result_.reset();
}

TEST_F(OnboardGivenTest, RefusesWhatMakesNoSense) {
  Rig rig;
  ImmutableBlocks blocks = rig.host().put(keys_);
  const auto none = [](Result<ImmutableBlocks>&&) { ADD_FAILURE(); };
  EXPECT_FALSE(rig.onboarder().onboard({.blocks = rig.device().put(chain(2, 1)), .done = none}).has_value());
  EXPECT_FALSE(rig.onboarder()
                   .onboard({.blocks = blocks.share(), .targets = *rig.device().pool().allocate(9), .done = none})
                   .has_value());
  EXPECT_FALSE(
      rig.onboarder().onboard({.blocks = {}, .targets = *rig.device().pool().allocate(1), .done = none}).has_value());
}

std::optional<std::uint32_t> prefetch(Rig& rig, const Keys& keys, TimePoint deadline = kNever) {
  std::optional<std::uint32_t> fetched;
  EXPECT_TRUE(rig.onboarder()
                  .prefetch({.keys = keys, .deadline = deadline, .done = [&](std::uint32_t n) { fetched = n; }})
                  .has_value());
  rig.run();
  return fetched;
}

TEST(OnboarderPrefetch, BringsWhatIsOnDiskAndNotAbove) {
  Rig rig;
  const Keys keys = chain(1, 50);
  (void)rig.disk().put(some_of(keys, 0, 45));
  (void)rig.host().put(some_of(keys, 10, 14));
  (void)rig.device().put(some_of(keys, 20, 22));
  EXPECT_EQ(prefetch(rig, keys), 39U);
  EXPECT_EQ(rig.host().pool().count_prefix(keys), 20U);
  EXPECT_THAT(rig.host().wrong_blocks(), IsEmpty());
  EXPECT_EQ(prefetch(rig, keys), 0U);
  rig.expect_drained();
}

TEST(OnboarderPrefetch, IsAUseOfWhatItReadsFromDisk) {
  Rig rig;
  const Keys keys = chain(1, 6);
  (void)rig.disk().put(keys);
  (void)rig.host().put(first_of(keys, 2));
  EXPECT_EQ(prefetch(rig, keys), 4U);
  EXPECT_EQ(rig.disk().take_load_uses(), 4U);
  EXPECT_EQ(rig.host().take_load_uses(), 0U);
}

TEST(OnboarderPrefetch, AsMuchAsThereIsRoomFor) {
  Rig rig({.blocks = {64, 16, 64}});
  const Keys keys = chain(1, 30);
  (void)rig.disk().put(keys);
  const ImmutableBlocks held = rig.host().put(chain(2, 6));
  EXPECT_EQ(prefetch(rig, keys), 10U);
  EXPECT_EQ(rig.host().pool().count_prefix(keys), 10U);
}

TEST(OnboarderPrefetch, WhatArrivedCannotBeEvictedBeforeDoneHasReturned) {
  Rig rig({.blocks = {64, 8, 64}});
  const Keys keys = chain(1, 5);
  (void)rig.disk().put(keys);
  // Two of the same blocks at once: the second waits for what the first brings.
  std::vector<std::uint32_t> evictable;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(rig.onboarder()
                    .prefetch({.keys = keys,
                               .deadline = kNever,
                               .done =
                                   [&](std::uint32_t n) {
                                     EXPECT_EQ(n, 5U);
                                     evictable.push_back(rig.host().pool().counts().available());
                                   }})
                    .has_value());
  }
  rig.run();
  EXPECT_THAT(evictable, ::testing::ElementsAre(3, 3));
  EXPECT_EQ(rig.host().pool().counts().available(), 8U);
  rig.expect_drained();
}

TEST(OnboarderPrefetch, AFailureIsAHole) {
  RigOptions options;
  options.faults[2] = {{.fault = Fault::kFail, .at = 3}};
  Rig rig(options);
  const Keys keys = chain(1, 8);
  (void)rig.disk().put(keys);
  EXPECT_EQ(prefetch(rig, keys), 7U);
  EXPECT_EQ(rig.host().pool().count_prefix(keys), 2U);
}

TEST(OnboarderPrefetch, EndsByItsDeadline) {
  RigOptions options;
  options.faults[2] = {{.fault = Fault::kHang, .at = 40}};
  Rig rig(options);
  const Keys keys = chain(1, 50);
  (void)rig.disk().put(keys);
  std::optional<std::uint32_t> fetched;
  ASSERT_TRUE(rig.onboarder()
                  .prefetch({.keys = keys, .deadline = milliseconds(50), .done = [&](std::uint32_t n) { fetched = n; }})
                  .has_value());
  rig.run(milliseconds(60));
  EXPECT_EQ(fetched, 49U);
}

TEST(OnboarderPrefetch, WithoutADiskThereIsNothingToDo) {
  ManualClock clock;
  const std::unique_ptr<BlockRegistry> registry = *BlockRegistry::create(8);
  testing::MemoryTier host(CacheLevel::kG2, 8, clock, *registry);
  auto onboarder = *Onboarder::make({.host = &host.tier(), .registry = registry.get(), .clock = &clock}, {});
  std::optional<std::uint32_t> fetched;
  ASSERT_TRUE(
      onboarder->prefetch({.keys = chain(1, 3), .deadline = kNever, .done = [&](std::uint32_t n) { fetched = n; }})
          .has_value());
  EXPECT_EQ(fetched, 0U);
}

}  // namespace
}  // namespace cairn
