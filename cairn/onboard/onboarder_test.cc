// Lookups, the cost model and loads without faults.
#include "cairn/onboard/onboarder.h"

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
using testing::Rig;
using testing::RigOptions;
using testing::some_of;

constexpr CacheLevel kG1 = CacheLevel::kG1;
constexpr CacheLevel kG2 = CacheLevel::kG2;
constexpr CacheLevel kG3 = CacheLevel::kG3;

RigOptions straight() { return {.onboard = {.through_host = false}}; }

TEST(OnboarderLocate, NamesTheNearestTierOfEachKey) {
  Rig rig;
  const Keys keys = chain(1, 10);
  (void)rig.device().put(first_of(keys, 2));
  (void)rig.device().put(some_of(keys, 6, 7));
  (void)rig.host().put(some_of(keys, 1, 4));
  (void)rig.host().put(some_of(keys, 6, 8));
  (void)rig.disk().put(first_of(keys, 9));
  EXPECT_THAT(rig.onboarder().locate(keys).levels, ElementsAre(kG1, kG1, kG2, kG2, kG3, kG3, kG1, kG2, kG3));
  EXPECT_THAT(rig.onboarder().locate({}).levels, IsEmpty());
  EXPECT_EQ(rig.onboarder().locate(chain(2, 3)).blocks(), 0U);
}

TEST(OnboarderLocate, LeavesOutWhatCannotBeReached) {
  Rig rig;
  const Keys keys = chain(1, 4);
  (void)rig.host().put(first_of(keys, 2));
  (void)rig.disk().put(keys);
  rig.link(LoadLink::kHostToDevice).pause(true);
  EXPECT_THAT(rig.onboarder().locate(keys).levels, ElementsAre(kG3, kG3, kG3, kG3));
  rig.link(LoadLink::kDiskToDevice).pause(true);
  EXPECT_THAT(rig.onboarder().locate(keys).levels, IsEmpty());
  rig.link(LoadLink::kHostToDevice).pause(false);
  EXPECT_THAT(rig.onboarder().locate(keys).levels, ElementsAre(kG2, kG2, kG3, kG3));
}

TEST(Onboarder, BlocksOnTheDeviceAreReportedAtOnce) {
  Rig rig;
  const Keys keys = chain(1, 5);
  (void)rig.device().put(keys);
  const auto loaded = rig.load(keys);
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 5U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_EQ(rig.onboarder().status().finished, 1U);
  EXPECT_EQ(rig.onboarder().status().hits[0], 5U);
}

TEST(Onboarder, EveryLoadIsOneUseInTheTierItReads) {
  Rig rig;
  const Keys keys = chain(1, 5);
  (void)rig.host().put(keys);
  for (std::uint32_t i = 0; i < 3; ++i) {
    {
      const auto loaded = rig.load(keys);
      rig.run();
      ASSERT_EQ(loaded->result.prefix, 5U);
      loaded->result = {};
    }
    EXPECT_EQ(rig.host().take_load_uses(), 5U);
    EXPECT_EQ(rig.registry().frequency(keys[4]), i + 2) << "once, though the device has it as well";
    EXPECT_EQ(rig.device().pool().reset_inactive(), 5U);
  }
}

TEST(Onboarder, AMissIsReportedAtOnceToo) {
  Rig rig;
  const auto loaded = rig.load(chain(1, 5));
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 0U);
  EXPECT_THAT(loaded->result.why, IsEmpty());
  EXPECT_EQ(rig.onboarder().status().misses, 5U);
  const auto nothing = rig.load({});
  EXPECT_TRUE(nothing->is_done);
}

class InterleavedTest : public ::testing::TestWithParam<bool> {};

TEST_P(InterleavedTest, ThePrefixOverAllTiersComesToTheDevice) {
  Rig rig({.onboard = {.through_host = GetParam()}});
  const Keys keys = chain(1, 50);
  (void)rig.device().put(first_of(keys, 3));
  (void)rig.host().put(some_of(keys, 3, 6));
  (void)rig.disk().put(some_of(keys, 5, 45));
  (void)rig.host().put(some_of(keys, 20, 22));
  (void)rig.device().put(some_of(keys, 30, 33));
  const auto loaded = rig.load(keys);
  EXPECT_FALSE(loaded->is_done);
  EXPECT_EQ(rig.onboarder().status().loads, 1U);
  EXPECT_GT(rig.wakes(), 0U);
  rig.run();
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 45U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(loaded->result.from, ElementsAre(6U, 5U, 34U, 0U));
  EXPECT_THAT(loaded->result.why, IsEmpty());
  EXPECT_EQ(rig.host().pool().count_prefix(some_of(keys, 6, 20)), GetParam() ? 14U : 0U);
  EXPECT_EQ(rig.copied(LoadLink::kDiskToDevice), GetParam() ? 0U : 34U);
  const OnboardStatus status = rig.onboarder().status();
  EXPECT_THAT(status.hits, ElementsAre(6U, 5U, 34U, 0U));
  EXPECT_EQ(status.misses, 5U);
  EXPECT_EQ(status.loads, 0U);
  loaded->result = {};
  rig.expect_drained();
}

INSTANTIATE_TEST_SUITE_P(Ways, InterleavedTest, ::testing::Bool());

TEST(Onboarder, TheHopsOfTwoWorkAtOnce) {
  // Each hop takes 1 ms a block: 128 blocks one hop after the other would take 256 ms.
  const double bytes = 2.0 * 2 * testing::kBlockSize * 8 * 2;
  Rig rig({.blocks = {200, 200, 200}, .ways = {.bytes_per_second = bytes * 1000}});
  const Keys keys = chain(1, 128);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 128U);
  EXPECT_LE(loaded->at, milliseconds(170));
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
}

TEST(Onboarder, AHostTooSmallForAllIsGoneThroughBitByBit) {
  Rig rig({.blocks = {128, 8, 128}, .has_straight = false});
  const Keys keys = chain(1, 100);
  (void)rig.disk().put(keys);
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 100U) << loaded->result.why;
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_EQ(rig.host().pool().counts().registered, 8U);
}

TEST(Onboarder, AFullHostIsPassedBy) {
  Rig rig;
  const Keys keys = chain(1, 20);
  (void)rig.disk().put(keys);
  const ImmutableBlocks others = rig.host().put(chain(2, 64));
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 20U);
  EXPECT_EQ(rig.copied(LoadLink::kDiskToDevice), 20U);
}

TEST(Onboarder, AFullHostThatCannotBePassedByIsSaid) {
  Rig rig({.has_straight = false});
  const Keys keys = chain(1, 20);
  (void)rig.disk().put(keys);
  const ImmutableBlocks others = rig.host().put(chain(2, 64));
  const auto loaded = rig.load(keys);
  rig.run();
  ASSERT_TRUE(loaded->is_done);
  EXPECT_EQ(loaded->result.prefix, 0U);
  EXPECT_THAT(loaded->result.why, HasSubstr("0 available"));
}

TEST(Onboarder, AsMuchAsThereIsRoomFor) {
  Rig rig({.blocks = {16, 64, 64}});
  const Keys keys = chain(1, 30);
  (void)rig.host().put(keys);
  (void)rig.device().put(first_of(keys, 2));
  const ImmutableBlocks others = rig.device().put(chain(2, 5));
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 11U);
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_THAT(loaded->result.why, HasSubstr("no room in G1 for 19 of 28 blocks"));
}

TEST(Onboarder, NoMoreThanRequested) {
  Rig rig;
  const Keys keys = chain(1, 30);
  (void)rig.device().put(first_of(keys, 2));
  (void)rig.host().put(some_of(keys, 2, 10));
  (void)rig.device().put(some_of(keys, 10, 12));
  (void)rig.disk().put(some_of(keys, 12, 30));
  const auto loaded = rig.load(keys, {}, 10);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 14U);
  EXPECT_EQ(rig.copied(LoadLink::kDiskToHost), 2U);
  EXPECT_THAT(loaded->result.why, IsEmpty());
}

// Returns a fixed number, and records its arguments.
class GivenAnswer final : public LoadCostModel {
 public:
  explicit GivenAnswer(std::uint32_t answer) : answer_(answer) {}
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
    asked_.assign(question.runs.begin(), question.runs.end());
    first_token_ = question.first_token;
    return answer_;
  }
  [[nodiscard]] const std::vector<LoadRun>& asked() const { return asked_; }
  [[nodiscard]] std::uint32_t first_token() const { return first_token_; }

 private:
  const std::uint32_t answer_;
  mutable std::vector<LoadRun> asked_;
  mutable std::uint32_t first_token_ = 0;
};

TEST(OnboarderWeigh, TheModelGetsWhatIsKnown) {
  const auto model = std::make_shared<GivenAnswer>(6);
  Rig rig({.cost = model});
  const Keys keys = chain(1, 12);
  (void)rig.device().put(first_of(keys, 2));
  (void)rig.host().put(some_of(keys, 2, 7));
  (void)rig.disk().put(some_of(keys, 7, 12));
  const auto loaded = rig.load(keys);
  ASSERT_EQ(model->asked().size(), 2U);
  EXPECT_EQ(model->first_token(), 2 * testing::kBlockSize);
  EXPECT_EQ(model->asked()[0].from, kG2);
  EXPECT_EQ(model->asked()[0].blocks, 5U);
  EXPECT_EQ(model->asked()[0].block_bytes, rig.device().tier().block_bytes());
  EXPECT_EQ(model->asked()[0].bytes_per_second, 0);
  EXPECT_EQ(model->asked()[1].from, kG3);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 8U);
  EXPECT_EQ(loaded->result.not_worth_it, 4U);
  EXPECT_THAT(loaded->result.why, IsEmpty());
  EXPECT_EQ(rig.onboarder().status().not_worth_it, 4U);
  // Now speeds are known, and transfers in flight are ahead.
  const Keys more = chain(2, 8);
  (void)rig.host().put(first_of(more, 4));
  (void)rig.disk().put(more);
  (void)rig.load(first_of(more, 4), {}, 0, false);
  (void)rig.load(more);
  ASSERT_EQ(model->asked().size(), 2U);
  EXPECT_EQ(model->asked()[0].block_bytes, 0U) << "it is already in flight";
  EXPECT_EQ(model->asked()[0].bytes_ahead, 4 * rig.device().tier().block_bytes());
  EXPECT_GT(model->asked()[0].bytes_per_second, 0);
  EXPECT_GT(model->asked()[1].bytes_per_second, 0);
  rig.run();
}

TEST(OnboarderWeigh, NotWhereItIsOff) {
  const Keys keys = chain(1, 4);
  Rig rig({.cost = std::make_shared<GivenAnswer>(0)});
  (void)rig.host().put(keys);
  const auto weighed = rig.load(keys);
  EXPECT_TRUE(weighed->is_done);
  EXPECT_EQ(weighed->result.not_worth_it, 4U);
  const auto loaded = rig.load(keys, {}, 0, false);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 4U);
  Rig off({.onboard = {.weigh = false}, .cost = std::make_shared<GivenAnswer>(0)});
  (void)off.host().put(keys);
  const auto all = off.load(keys);
  off.run();
  EXPECT_EQ(all->result.prefix, 4U);
}

TEST(OnboarderWeigh, ASlowDiskIsLearntAndThenLeftAlone) {
  // 1 s a block, where the engine computes one in 4 ms.
  Rig rig({.onboard = {.through_host = false, .deadline = seconds(100), .prefill_tokens_per_second = 1000},
           .ways = {.bytes_per_second = 256}});
  const Keys keys = chain(1, 4);
  (void)rig.disk().put(keys);
  (void)rig.disk().put(chain(2, 4));
  const auto tried = rig.load(keys);
  rig.run();
  EXPECT_EQ(tried->result.prefix, 4U);
  const auto left = rig.load(chain(2, 4));
  EXPECT_TRUE(left->is_done);
  EXPECT_EQ(left->result.not_worth_it, 4U);
}

TEST(Onboarder, TooManyAreRefusedAndUnchanged) {
  Rig rig({.onboard = {.loads = 2}});
  (void)rig.host().put(chain(1, 2));
  (void)rig.host().put(chain(2, 2));
  (void)rig.host().put(chain(3, 2));
  const auto first = rig.load(chain(1, 2));
  const auto second = rig.load(chain(2, 2));
  LoadRequest third{.keys = chain(3, 2), .done = [](LoadOutcome&&) { ADD_FAILURE() << "it was refused"; }};
  const Result<LoadId> refused = rig.onboarder().load(std::move(third));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(third.keys.size(), 2U);  // NOLINT(bugprone-use-after-move): as it was
  EXPECT_EQ(rig.onboarder().status().refused, 1U);
  rig.run();
  EXPECT_EQ(rig.load(chain(3, 2))->is_done, false);
}

TEST(Onboarder, RefusesWhatMakesNoSense) {
  Rig rig;
  const Keys keys = chain(1, 2);
  (void)rig.host().put(keys);
  const Result<LoadId> twice = rig.onboarder().load({.keys = joined(keys, keys)});
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(rig.onboarder().load_into({.block_ids = {BlockId{0}}}, {.keys = first_of(keys, 1)}).has_value());
  EXPECT_FALSE(Onboarder::make({.device = &rig.host().tier(), .registry = &rig.registry(), .clock = &rig.clock()}, {})
                   .has_value());
  EXPECT_FALSE(Onboarder::make({.host = &rig.host().tier(),
                                .disk = &rig.disk().tier(),
                                .disk_to_host = &rig.link(LoadLink::kDiskToDevice),
                                .registry = &rig.registry(),
                                .clock = &rig.clock()},
                               {})
                   .has_value());
  EXPECT_FALSE(Onboarder::make({.registry = &rig.registry(), .clock = &rig.clock()}, {.loads = 0}).has_value());
}

TEST(Onboarder, AFullExecutorIsWaitedFor) {
  Rig rig({.onboard = {.through_host = false}, .ways = {.latency = milliseconds(10), .limit = 1}});
  const Keys keys = chain(1, 12);
  for (std::uint32_t i = 0; i < 12; i += 2) {
    (void)rig.host().put(some_of(keys, i, i + 1));
    (void)rig.disk().put(some_of(keys, i + 1, i + 2));
  }
  const auto loaded = rig.load(keys);
  rig.run();
  EXPECT_EQ(loaded->result.prefix, 12U) << loaded->result.why;
  EXPECT_TRUE(rig.is_right(loaded->result, keys));
  EXPECT_LE(loaded->at, milliseconds(80));
}

TEST(Onboarder, AFullExecutorIsNotWaitedForBeyondTheDeadline) {
  Rig rig({.ways = {.latency = seconds(1), .limit = 1}});
  (void)rig.host().put(chain(1, 2));
  (void)rig.host().put(chain(2, 2));
  const auto first = rig.load(chain(1, 2), seconds(5));
  const auto second = rig.load(chain(2, 2), milliseconds(500));
  rig.run();
  EXPECT_EQ(first->result.prefix, 2U);
  EXPECT_EQ(second->at, milliseconds(500));
  EXPECT_EQ(second->result.prefix, 0U);
  EXPECT_EQ(rig.onboarder().status().expired, 1U);
}

TEST(Onboarder, LoadsMayBeBegunWhereOneEnds) {
  Rig rig(straight());
  (void)rig.host().put(chain(1, 2));
  (void)rig.disk().put(chain(2, 2));
  std::uint32_t second = 0;
  const Result<LoadId> id = rig.onboarder().load(
      {.keys = chain(1, 2), .done = [&](LoadOutcome&& /*result*/) {
         EXPECT_TRUE(rig.onboarder()
                         .load({.keys = chain(2, 2), .done = [&](LoadOutcome&& result) { second = result.prefix; }})
                         .has_value());
       }});
  ASSERT_TRUE(id.has_value());
  rig.run();
  EXPECT_EQ(second, 2U);
}

}  // namespace
}  // namespace cairn
