// Requests that compute while they are loaded; draft tokens; tokens that are computed again.
#include <gmock/gmock.h>

#include "cairn/connector/scheduler_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using When = SchedulerConnector::Match::When;

constexpr std::size_t kPrompt = 22;  // five blocks of four tokens and two

SchedulerConnector::Options in_step() {
  SchedulerConnector::Options options = small_options();
  options.load = LoadMode::kInStep;
  return options;
}

// A request of the prompt whose first four blocks are to be loaded into blocks from 20 on.
RequestHandle loads_four(World& world, const RequestId& id) {
  world.save_prompt("saved", 18);
  const RequestHandle request = world.add(id, kPrompt);
  const auto match = *world->match(request, 0);
  EXPECT_EQ(match.tokens, 16);
  EXPECT_TRUE(is_ok(world->allocated(request, device_blocks(7, 20), 0, 16)));
  return request;
}

TEST(SchedulerInStepTest, ARequestRunsInTheIterationOfItsLoad) {
  World world(in_step());
  const RequestHandle a = loads_four(world, "a");
  const auto metadata = world.begin({{.request = a, .computed_tokens = 16}});
  ASSERT_THAT(metadata.loads, SizeIs(1));
  EXPECT_TRUE(metadata.loads[0]->in_step);
  EXPECT_EQ(*world->state(a), SlotState::onboarding(world.iteration));
  world.take_until([&] { return world.ranks[0]->has_heard(metadata.loads[0]->id) && !world.loaded.empty(); });
  EXPECT_TRUE(world.hold(world.keys_of(18), device_blocks(4, 20)));
  EXPECT_EQ(*world->state(a), SlotState::prefilling());
  world.end();

  const auto token = tokens(1, 900);
  const auto saves = world.step({{.request = a, .computed_tokens = 22, .new_tokens = token}}).saves;
  EXPECT_THAT(world->refused(), IsEmpty());
  ASSERT_THAT(saves, SizeIs(1)) << "what it computed during its load";
  EXPECT_EQ(saves[0]->block_ids, device_blocks(1, 24));
  EXPECT_EQ(*world->state(a), SlotState::decoding());
  EXPECT_TRUE(*world->finish(a));
  world.drain();
}

TEST(SchedulerInStepTest, AMatchIsForNow) {
  World world(in_step());
  world.save_prompt("saved", 18);
  const auto match = *world->match(world.add("a", kPrompt), 0);
  EXPECT_EQ(match.tokens, 16);
  EXPECT_EQ(match.when, When::kNow);
}

TEST(SchedulerInStepTest, IterationsThatAreBuiltDuringALoadAreAppliedAfterIt) {
  World world(in_step());
  const RequestHandle a = loads_four(world, "a");
  std::vector<std::byte> bytes;
  SchedulerConnector::Scheduled scheduled{.request = a, .computed_tokens = 16};
  ASSERT_TRUE(world->build({.number = ++world.iteration, .scheduled = {&scheduled, 1}}, bytes).has_value());
  const auto token = tokens(1, 900);
  const auto drafts = tokens(3, 950);
  scheduled = {.request = a, .computed_tokens = 22, .new_tokens = token, .draft_tokens = drafts};
  ASSERT_TRUE(world->build({.number = ++world.iteration, .scheduled = {&scheduled, 1}}, bytes).has_value());
  EXPECT_THAT(world->refused(), IsEmpty());
  world.ranks[0]->reached(StepMark::begun(world.iteration));
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].tokens, 16);
  EXPECT_EQ(*world->state(a), SlotState::prefilling());

  // Two of the draft tokens were right: tokens 23 to 24, which with the new one fill block 5.
  const auto next = tokens(1, 800);
  const auto saves =
      world.step({{.request = a, .computed_tokens = 25, .new_tokens = next, .accepted_draft_tokens = 2}}).saves;
  EXPECT_THAT(world->refused(), IsEmpty());
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0]->block_ids, device_blocks(2, 24));
}

TEST(SchedulerInStepTest, ARequestThatWasPassedOverMeanwhileIsNotScheduled) {
  World world(in_step());
  const RequestHandle a = loads_four(world, "a");
  std::vector<std::byte> bytes;
  const SchedulerConnector::Scheduled scheduled{.request = a, .computed_tokens = 16};
  ASSERT_TRUE(world->build({.number = ++world.iteration, .scheduled = {&scheduled, 1}}, bytes).has_value());
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(*world->state(a), SlotState::not_scheduled());
  EXPECT_THAT(world.step({{.request = a, .computed_tokens = 22}}).saves, SizeIs(1));
}

TEST(SchedulerInStepTest, ALoadThatIsNotScheduledIsWaitedForAsAnyOther) {
  World world(in_step());
  const RequestHandle a = loads_four(world, "a");
  world.ranks[0]->stop(true);
  const auto loads = world.step().loads;
  ASSERT_THAT(loads, SizeIs(1));
  EXPECT_FALSE(loads[0]->in_step);
  world.ranks[0]->stop(false);
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(*world->state(a), SlotState::not_scheduled());
}

TEST(SchedulerInStepTest, CountsThatDoNotFitTheLoadTakeItBack) {
  World world(in_step());
  const RequestHandle a = loads_four(world, "a");
  EXPECT_THAT(world.step({{.request = a, .computed_tokens = 0}}).loads, IsEmpty());
  ASSERT_THAT(world->refused(), SizeIs(1));
  EXPECT_THAT(world->refused()[0].error.message, HasSubstr("the load of the request brings them to 16"));
  EXPECT_FALSE(*world->finish(a));
}

TEST(SchedulerInStepTest, WhatFailedIsComputedAgainAndSavedThen) {
  World world(in_step());
  const RequestHandle a = loads_four(world, "a");
  world.ranks[0]->fail(1);
  world.step({{.request = a, .computed_tokens = 16}});
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].missing, 16);
  world.ranks[0]->fail(0);
  EXPECT_THAT(world.step({{.request = a, .computed_tokens = 0}}).saves, IsEmpty());
  const auto saves = world.step({{.request = a, .computed_tokens = 22}}).saves;
  EXPECT_THAT(world->refused(), IsEmpty());
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0]->block_ids, device_blocks(5, 20));
}

TEST(SchedulerConnectorTest, ComputedAgainIsSavedAgainAndFenced) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(6, 0);
  world.step({{.request = a, .new_blocks = blocks}});
  world.ranks[0]->stop(true);
  const auto saves = world.step({{.request = a, .computed_tokens = 22}}).saves;
  ASSERT_THAT(saves, SizeIs(1));
  const auto again = world.step({{.request = a, .computed_tokens = 8}});
  EXPECT_THAT(again.saves, IsEmpty());
  ASSERT_THAT(again.fences, SizeIs(1));
  EXPECT_EQ(again.fences[0]->id, saves[0]->id);
  EXPECT_EQ(*world->state(a), SlotState::prefilling());
  const auto later = world.step({{.request = a, .computed_tokens = 22}});
  ASSERT_THAT(later.saves, SizeIs(1));
  EXPECT_EQ(later.saves[0]->block_ids, device_blocks(3, 2));
  EXPECT_THAT(world->refused(), IsEmpty());
  world.ranks[0]->stop(false);
  EXPECT_TRUE(*world->finish(a));
  world.drain();
}

TEST(SchedulerConnectorTest, DraftTokensAreSettledFirstAlsoAcrossAPreemption) {
  World world(small_options());
  const RequestHandle a = world.add("a", 7);
  const auto blocks = device_blocks(4, 0);
  world.step({{.request = a, .new_blocks = blocks}});
  const auto first = tokens(1, 900);
  const auto drafts = tokens(4, 950);
  world.step({{.request = a, .computed_tokens = 7, .new_tokens = first, .draft_tokens = drafts}});
  // Three of four are right: 11 tokens, and the next one.
  const auto second = tokens(1, 800);
  auto saves = world
                   .step({{.request = a,
                           .computed_tokens = 11,
                           .new_tokens = second,
                           .draft_tokens = drafts,
                           .accepted_draft_tokens = 3}})
                   .saves;
  EXPECT_THAT(world->refused(), IsEmpty());
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0]->block_ids, device_blocks(1, 1)) << "the second block; the third has a token to compute";

  world.take_until([&] { return !world->has_work(); });
  world.step({}, {a});
  const auto others = device_blocks(5, 20);
  const auto third = tokens(1, 700);
  world.step({{.request = a, .new_tokens = third, .new_blocks = others, .accepted_draft_tokens = 2}});
  EXPECT_THAT(world->refused(), IsEmpty());
  saves = world.step({{.request = a, .computed_tokens = 15}}).saves;
  ASSERT_THAT(saves, SizeIs(1));
  EXPECT_EQ(saves[0]->block_ids, device_blocks(3, 20));
  std::vector<Token> all = tokens(7);
  for (const auto& [part, count] : {std::pair(&first, 1), {&drafts, 3}, {&second, 1}, {&drafts, 2}, {&third, 1}}) {
    all.insert(all.end(), part->begin(), part->begin() + count);
  }
  world.drain();
  const TokenBlockSequence sequence = *TokenBlockSequence::create(all, kBlockSize, world->manager().hasher());
  EXPECT_EQ(world->manager().locate(sequence.keys()).blocks(), 3) << "under the keys of the final tokens";

  world.step({{.request = a, .computed_tokens = 15, .accepted_draft_tokens = 1}});
  ASSERT_THAT(world->refused(), SizeIs(1));
  EXPECT_THAT(world->refused()[0].error.message, HasSubstr("1 of 0 draft tokens"));
}

}  // namespace
}  // namespace cairn
