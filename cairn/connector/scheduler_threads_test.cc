// The scheduler's side with ranks of this process: each line of its contract.
#include <gmock/gmock.h>

#include "cairn/connector/scheduler_testing.h"
#include "cairn/onboard/load_cost.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using When = SchedulerConnector::Match::When;

constexpr std::size_t kPrompt = 18;  // four blocks of four tokens and two

std::size_t matched(World& world, RequestHandle request, std::size_t local = 0) {
  const auto match = world->match(request, local);
  EXPECT_TRUE(match.has_value());
  return match->tokens;
}

TEST(SchedulerConnectorTest, WhatOneRequestComputedIsLoadedForTheNext) {
  World world(small_options(64, 64, 2));
  world.save_prompt("a", kPrompt);
  EXPECT_THAT(world.released, ElementsAre(RequestId("a")));
  EXPECT_FALSE(world->find("a").has_value());

  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(world->find("b"), b);
  const auto match = *world->match(b, 0);
  EXPECT_EQ(match.tokens, 16);
  EXPECT_EQ(match.when, When::kLater);
  EXPECT_EQ(matched(world, b), 16) << "match() may be called again";
  const auto blocks = device_blocks(5, 30);
  CAIRN_SLOT_OK(world->allocated(b, blocks, 0, 16));
  EXPECT_TRUE(world->has_work());
  const IterationMetadata metadata = world.step();
  ASSERT_THAT(metadata.loads, SizeIs(1)) << "though it is not scheduled";
  EXPECT_EQ(metadata.loads[0]->request, RequestId("b"));
  EXPECT_FALSE(metadata.loads[0]->in_step);
  EXPECT_EQ(metadata.loads[0]->block_ids, device_blocks(4, 30));
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].request, b);
  EXPECT_EQ(world.loaded[0].tokens, 16);
  EXPECT_EQ(world.loaded[0].missing, 0);
  EXPECT_TRUE(world.hold(world.keys_of(kPrompt), blocks));
  EXPECT_EQ(*world->state(b), SlotState::not_scheduled());

  EXPECT_THAT(world.step({{.request = b, .computed_tokens = 16}}).saves, IsEmpty());
  EXPECT_EQ(*world->state(b), SlotState::prefilling());
  EXPECT_THAT(world->refused(), IsEmpty());
  EXPECT_FALSE(*world->finish(b, 18)) << "all full blocks came from the tiers";
  EXPECT_FALSE(world->has_work());
}

TEST(SchedulerConnectorTest, SaltsSeparateRequestsAndTheSchemeSelectsTheHash) {
  SchedulerConnector::Options options = small_options();
  World world(options);
  world.save_prompt("a", kPrompt);
  EXPECT_EQ(matched(world, *world->add("b", {.tokens = tokens(kPrompt, 100), .salt = {.salt = "other"}})), 0);
  EXPECT_EQ(matched(world, *world->add("c", {.tokens = tokens(kPrompt, 100), .salt = {.lora_name = "other"}})), 0);
  EXPECT_EQ(matched(world, *world->add("d", {.tokens = tokens(kPrompt, 100)})), 16);
  EXPECT_EQ(world->manager().hasher().scheme(), KeyScheme::kNative);

  options.manager.model.scheme = KeyScheme::kVllm;
  World vllm(options);
  const auto added = vllm->add("a", {.tokens = tokens(kPrompt, 100)});
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().message, HasSubstr("scheme vllm"));
}

TEST(SchedulerConnectorTest, LoadsTouchTheirBlocksWhenTheIterationHasBegunAndSavesAfterTheLastOne) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(5);
  world.begin({{.request = a, .new_blocks = blocks}});
  EXPECT_TRUE(*world->finish(a, kPrompt));
  std::vector<std::byte> bytes;
  ASSERT_TRUE(world->build({.number = ++world.iteration}, bytes).has_value());  // the ranks have not begun it
  const auto saves = IterationMetadata::decode(bytes)->saves;
  ASSERT_THAT(saves, SizeIs(1));
  world.take_until([&] { return world.ranks[0]->held() == 1; });
  world.compute(world.keys_of(kPrompt), blocks);
  world.ranks[0]->reached(StepMark::computed(1));
  world.take_until([&] { return !world.released.empty(); });
  world.take_until([&] { return world.ranks[0]->times_heard(saves[0]->id) == 1; });

  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  ASSERT_TRUE(world->build({.number = ++world.iteration}, bytes).has_value());
  world.take_until([&] { return world.ranks[0]->held() == 1; });
  EXPECT_THAT(world.loaded, IsEmpty());
  world.ranks[0]->reached(StepMark::begun(world.iteration));
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_TRUE(world.hold(world.keys_of(kPrompt), device_blocks(4, 20)));
}

TEST(SchedulerConnectorTest, TheEnginesOwnTokensAndFewerBlocksThanMatched) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b, 4), 12);
  EXPECT_TRUE(is_invalid_operation(world->allocated(b, device_blocks(5, 20), 0, 12))) << "matched after 4";
  EXPECT_TRUE(is_invalid_operation(world->allocated(b, device_blocks(5, 20), 4, 16))) << "more than matched";
  EXPECT_TRUE(is_invalid_operation(world->allocated(b, device_blocks(5, 20), 4, 6))) << "no whole blocks";
  EXPECT_TRUE(is_invalid_operation(world->allocated(b, device_blocks(3, 20), 4, 12))) << "too few blocks";
  EXPECT_TRUE(is_invalid_operation(world->allocated(b, device_blocks(5, 62), 4, 12))) << "the engine has 64";
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 4, 8));
  EXPECT_TRUE(is_invalid_operation(world->allocated(b, device_blocks(5, 20), 4, 8))) << "it has them";
  const auto metadata = world.step();
  ASSERT_THAT(metadata.loads, SizeIs(1));
  EXPECT_EQ(metadata.loads[0]->block_ids, device_blocks(2, 21));
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].tokens, 12);
  const auto keys = world.keys_of(kPrompt);
  EXPECT_TRUE(world.hold(std::span(keys).subspan(1, 2), device_blocks(2, 21)));

  // The block that it computes itself is stored already; it is saved again like any other.
  world.step({{.request = b, .computed_tokens = 12}});
  const auto saves = world.step({{.request = b, .computed_tokens = 17}}).saves;
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0]->block_ids, device_blocks(1, 23));
  EXPECT_THAT(world->refused(), IsEmpty());
  EXPECT_TRUE(*world->finish(b));
  world.drain();
}

TEST(SchedulerConnectorTest, AMatchThatIsNotUsedIsForgotten) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 4, 0));
  const RequestHandle c = world.add("c", kPrompt);
  EXPECT_EQ(matched(world, c), 16);
  const auto more = device_blocks(5, 30);
  EXPECT_THAT(world.step({{.request = b, .computed_tokens = 4}, {.request = c, .new_blocks = more}}).loads, IsEmpty());
  EXPECT_THAT(world->refused(), IsEmpty());
  EXPECT_EQ(*world->state(b), SlotState::prefilling());
  EXPECT_EQ(*world->state(c), SlotState::prefilling());
}

TEST(SchedulerConnectorTest, LoadsAreBegunInTheOrderOfAllocation) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const std::vector<std::uint32_t> firsts = {40, 10, 30, 20};
  for (const std::uint32_t first : firsts) {
    const RequestHandle request = world.add(std::uint64_t{first}, kPrompt);
    EXPECT_EQ(matched(world, request), 16);
    CAIRN_SLOT_OK(world->allocated(request, device_blocks(5, first), 0, 16));
  }
  const auto loads = world.step().loads;
  ASSERT_THAT(loads, SizeIs(4));
  world.take_until([&] { return world.loaded.size() == 4; });
  const std::vector<BlockId> begun = world.ranks[0]->loads();
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    EXPECT_EQ(loads[i]->block_ids[0], BlockId{firsts[i]});
    EXPECT_EQ(begun[i], BlockId{firsts[i]});
  }
}

TEST(SchedulerConnectorTest, LoadsBeyondTheLimitAreRetriedAndThenComputed) {
  SchedulerConnector::Options options = small_options();
  options.loading_blocks = 6;
  options.ask_again = 2;
  World world(options);
  world.save_prompt("a", kPrompt);
  world.save_prompt("long", 34, 0, 500);  // eight blocks
  const RequestHandle big = world.add("big", 34, 500);
  EXPECT_EQ(matched(world, big), 24) << "the most that may be loaded at once";
  const RequestHandle b = world.add("b", kPrompt);
  const RequestHandle c = world.add("c", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  for (int i = 0; i < 2; ++i) {
    const auto match = *world->match(c, 0);
    EXPECT_EQ(match.when, When::kAskAgain);
    EXPECT_EQ(match.tokens, 0);
  }
  EXPECT_EQ(world->match(c, 0)->when, When::kNow) << "it computes";
  EXPECT_EQ(matched(world, c, 8), 8) << "what fits is loaded";
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(matched(world, c), 16) << "there is room again";
}

TEST(SchedulerConnectorTest, SmallLoadsAreNotWorthIt) {
  SchedulerConnector::Options options = small_options();
  options.least_blocks = 4;
  World world(options);
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b, 4), 0);
  EXPECT_EQ(matched(world, b, 0), 16);
}

TEST(SchedulerConnectorTest, TheCostModelDecides) {
  class OneBlock final : public LoadCostModel {
   public:
    [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion& question) const override {
      EXPECT_EQ(question.first_token, 4);
      return 1;
    }
  };
  SchedulerConnector::Options options = small_options();
  options.manager.onboard.weigh = true;
  options.parts.cost = std::make_shared<OneBlock>();
  World world(options);
  world.save_prompt("a", kPrompt);
  EXPECT_EQ(matched(world, world.add("b", kPrompt), 4), 4);
}

TEST(SchedulerConnectorTest, ALoadThatFailsSaysWhatIsMissing) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  world.ranks[0]->fail(1);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  const auto blocks = device_blocks(5, 20);
  CAIRN_SLOT_OK(world->allocated(b, blocks, 0, 16));
  const auto loads = world.step().loads;
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].tokens, 0);
  EXPECT_EQ(world.loaded[0].missing, 16);
  world.take_until([&] { return world.ranks[0]->has_heard(loads[0]->id); });
  world.ranks[0]->fail(0);
  EXPECT_EQ(matched(world, b), 0) << "blocks whose load failed once are computed";
  world.step({{.request = b, .computed_tokens = 0}});
  EXPECT_THAT(world->refused(), IsEmpty());
  EXPECT_THAT(world.step({{.request = b, .computed_tokens = 16}}).saves, SizeIs(1)) << "and saved";
}

TEST(SchedulerConnectorTest, SavesThatAreRefusedAreCountedByReason) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.queue = 4;
  World world(options);
  world.save_prompt("a", kPrompt);
  EXPECT_EQ(world->saves().asked, 4);
  EXPECT_EQ(world->saves().saved, 4);
  ASSERT_TRUE(world->manager().pause(CacheLevel::kG1, CacheLevel::kG2).has_value());
  world.save_prompt("b", kPrompt, 0, 500);
  EXPECT_EQ(world->saves().paused, 4);
  ASSERT_TRUE(world->manager().resume(CacheLevel::kG1, CacheLevel::kG2).has_value());
  world.save_prompt("c", kPrompt + 2 * kBlockSize, 0, 900);  // one save of six blocks
  EXPECT_EQ(world->saves().shed, 2);
  EXPECT_EQ(world->saves().lost, 0);
  EXPECT_EQ(world->saves().saved, 8);
  world.ranks[0]->fail(1);
  world.save_prompt("d", kPrompt, 0, 1300);
  EXPECT_EQ(world->saves().lost, 4);
  EXPECT_EQ(world->saves().asked, 18);
  // The offloader's figures are of the same blocks, by their reasons: every copy from an engine's device is a save.
  const std::string text = world->manager().metrics().to_prometheus();
  for (const char* line : {"cairn_offload_offered_total{into=\"G2\"} 18", "cairn_offload_copied_total{into=\"G2\"} 8",
                           "cairn_offload_refused_total{into=\"G2\",reason=\"tier_out\"} 4",
                           "cairn_offload_refused_total{into=\"G2\",reason=\"shed\"} 2"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(SchedulerConnectorTest, WhatDidNotComeCannotBeCountedAsComputed) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  world.ranks[0]->fail(1);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  world.step({{.request = b, .computed_tokens = 16}});
  ASSERT_THAT(world->refused(), SizeIs(1));
  EXPECT_EQ(world->refused()[0].request, b);
  EXPECT_THAT(world->refused()[0].error.message, HasSubstr("the load of the request ended at 0"));
  EXPECT_THAT(world.step({{.request = b, .computed_tokens = 17}}).saves, IsEmpty()) << "nobody knows what is in them";
  EXPECT_THAT(world->refused(), IsEmpty()) << "reported once";
  EXPECT_EQ(matched(world, b), 0);
  EXPECT_FALSE(*world->finish(b));
}

TEST(SchedulerConnectorTest, OnlyTheRequestWithTheErrorGoesWithoutACache) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt, 500);
  const auto blocks = device_blocks(5);
  const auto bad = device_blocks(5, 62);
  const RequestHandle gone{12345};
  world.step({{.request = gone}, {.request = a, .new_blocks = bad}, {.request = b, .new_blocks = blocks}}, {gone});
  ASSERT_THAT(world->refused(), SizeIs(3));
  EXPECT_EQ(world->refused()[0].request, gone);
  EXPECT_EQ(world->refused()[0].error.code, ErrorCode::kNotFound);
  EXPECT_EQ(world->refused()[2].request, a);
  EXPECT_THAT(world->refused()[2].error.message, HasSubstr("goes on without a cache"));
  const auto saves = world.step({{.request = a, .computed_tokens = 18}, {.request = b, .computed_tokens = 18}}).saves;
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0]->request, RequestId("b"));
  world.step({{.request = b, .computed_tokens = 18}, {.request = b, .computed_tokens = 18}});
  ASSERT_THAT(world->refused(), SizeIs(1));
  EXPECT_THAT(world->refused()[0].error.message, HasSubstr("twice"));

  EXPECT_EQ(world->state(gone).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(world->match(gone, 0).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(world->finish(gone).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(world->allocated(gone, {}, 0, 0).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(world->add("b", {.tokens = tokens(4)}).error().code == ErrorCode::kAlreadyExists);
}

TEST(SchedulerConnectorTest, IterationsGrow) {
  World world(small_options());
  world.step();
  world.step();
  std::vector<std::byte> bytes = {std::byte{7}};
  const RequestHandle a = world.add("a", kPrompt);
  const SchedulerConnector::Scheduled scheduled{.request = a};
  const Status status = world->build({.number = 2, .scheduled = {&scheduled, 1}}, bytes);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bytes.size(), 1);
  EXPECT_EQ(*world->state(a), SlotState::initialized());
}

TEST(SchedulerConnectorTest, APreemptedRequestIsFencedSavedAndLoadedAgain) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(5);
  world.begin({{.request = a, .new_blocks = blocks}});
  world.compute(world.keys_of(kPrompt), blocks);
  world.end();
  const auto token = tokens(1, 900);
  const auto saves = world.step({{.request = a, .computed_tokens = 18, .new_tokens = token}}).saves;
  ASSERT_THAT(saves, SizeIs(1));
  world.take_until([&] { return world.ranks[0]->has_heard(saves[0]->id); });
  world.take_until([] { return true; });
  EXPECT_THAT(world.step({}, {a}).fences, IsEmpty()) << "the save has ended";
  EXPECT_EQ(*world->state(a), SlotState::not_scheduled());

  EXPECT_EQ(matched(world, a), 16);
  const auto others = device_blocks(5, 20);
  CAIRN_SLOT_OK(world->allocated(a, others, 0, 16));
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_TRUE(world.hold(world.keys_of(kPrompt), others));
  EXPECT_TRUE(world.step({{.request = a, .computed_tokens = 16}}).saves.empty());
  EXPECT_THAT(world->refused(), IsEmpty());
}

TEST(SchedulerConnectorTest, SavesInFlightAreFencedOnceAndReadNothingNew) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(5);
  world.begin({{.request = a, .new_blocks = blocks}});
  world.compute(world.keys_of(kPrompt), blocks);
  world.end();
  world.ranks[0]->stop(true);
  const auto saves = world.step({{.request = a, .computed_tokens = 18}}).saves;
  ASSERT_THAT(saves, SizeIs(1));
  const auto fences = world.begin({}, {a}).fences;
  ASSERT_THAT(fences, SizeIs(1));
  EXPECT_EQ(fences[0]->id, saves[0]->id);
  EXPECT_EQ(fences[0]->block_ids, saves[0]->block_ids);
  world.compute(world.keys_of(kPrompt, 500), blocks);  // of another request
  world.end();
  EXPECT_THAT(world.step({}, {a}).fences, IsEmpty());
  world.ranks[0]->stop(false);
  world.drain();
  EXPECT_EQ(matched(world, a), 0) << "blocks that were read too late are not stored";
}

TEST(SchedulerConnectorTest, ALoadCannotBePreemptedButFinished) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  world.ranks[0]->stop(true);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  const auto loads = world.step().loads;
  world.step({{.request = b, .computed_tokens = 16}}, {b});
  ASSERT_THAT(world->refused(), SizeIs(2));
  EXPECT_THAT(world->refused()[0].error.message, HasSubstr("wait until it has ended, or finish"));
  EXPECT_THAT(world->refused()[1].error.message, HasSubstr("is in flight; schedule the request when"));
  EXPECT_TRUE(*world->finish(b)) << "the load writes to its blocks";
  EXPECT_FALSE(world->finish(b).has_value());
  EXPECT_TRUE(world->has_work());
  world.released.clear();
  world.ranks[0]->stop(false);
  world.drain();
  EXPECT_THAT(world.released, ElementsAre(RequestId("b")));
  EXPECT_THAT(world.loaded, IsEmpty()) << "nobody waits for it";
  world.take_until([&] { return world.ranks[0]->times_heard(loads[0]->id) == 1; });
}

TEST(SchedulerConnectorTest, ARequestThatIsGoneBeforeItsLoadBeganLeavesNothing) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  EXPECT_FALSE(*world->finish(b));
  EXPECT_FALSE(world->has_work());
  const RequestHandle c = world.add("c", kPrompt);
  EXPECT_NE(b, c);
  EXPECT_FALSE(world->state(b).has_value()) << "another request has its place now";
  EXPECT_EQ(matched(world, c), 16);
  CAIRN_SLOT_OK(world->allocated(c, device_blocks(5, 20), 0, 16));
  EXPECT_THAT(world.step({}, {c}).loads, IsEmpty());
  EXPECT_FALSE(world->has_work());
  EXPECT_FALSE(*world->finish(c));
}

}  // namespace
}  // namespace cairn
