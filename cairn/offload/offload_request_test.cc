// Requested blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cairn/offload/offload_testing.h"

namespace cairn::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr OffloadOptions kOff{.mode = OffloadMode::kOff};
constexpr OffloadOptions kOneAtATime{.mode = OffloadMode::kOff, .batch = 1, .in_flight = 1};

TEST(OffloadRequestTest, GetsAnOutcomeForEachKey) {
  World world({.offload = kOff});
  const Keys keys = chain(1, 3);
  const Keys missing = chain(2, 1);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[0], missing[0], keys[2], keys[0]}, .done = outcome.hear()}));
  EXPECT_EQ(outcome.times, 0);
  world.drain();
  EXPECT_EQ(outcome.times, 1);
  EXPECT_THAT(outcome.is_below, ElementsAre(true, false, true, true));
  EXPECT_THAT(outcome.error, HasSubstr("gone"));
  EXPECT_THAT(outcome.error, HasSubstr(missing[0].to_string()));
  EXPECT_TRUE(world.is_whole_below(keys[0]));
  EXPECT_TRUE(world.is_whole_below(keys[2]));
  EXPECT_FALSE(world.is_below(keys[1]));
  world.expect_accounts_add_up();
}

TEST(OffloadRequestTest, WhatIsBelowAlreadyIsAnsweredByThePump) {
  World world({.offload = kOff});
  const Keys keys = chain(1, 2);
  world.put(keys);
  ASSERT_TRUE(world.offloader->offload({.keys = keys}));
  world.drain();
  Outcome again;
  Outcome nothing;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = again.hear()}));
  ASSERT_TRUE(world.offloader->offload({.keys = {}, .done = nothing.hear()}));
  EXPECT_FALSE(world.offloader->is_idle());
  EXPECT_EQ(again.times, 0);
  EXPECT_TRUE(world.offloader->pump());
  EXPECT_THAT(again.is_below, ElementsAre(true, true));
  EXPECT_EQ(again.error, "");
  EXPECT_EQ(nothing.times, 1);
  EXPECT_EQ(world.offloader->status().copied, 2U);
}

TEST(OffloadRequestTest, ManyRequestsForOneBlockShareItsCopy) {
  World world({.offload = kOff});
  const Keys keys = chain(1, 1);
  world.put(keys);
  std::vector<Outcome> outcomes(20);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcomes[i].hear()}));
    if (i == 10) {
      (void)world.offloader->pump();  // in flight from here on
      EXPECT_EQ(world.offloader->status().in_flight, 1U);
    }
  }
  world.drain();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.times, 1);
    EXPECT_THAT(outcome.is_below, ElementsAre(true));
  }
  EXPECT_EQ(world.offloader->status().copied, 1U);
  EXPECT_EQ(world.refused(OffloadRefusal::kInFlight), 19U);
  EXPECT_EQ(world.below().stats().registered, 1U);
}

TEST(OffloadRequestTest, ARequestedVictimIsCopiedOnce) {
  World world({.upper = 8, .low_water = 4, .offload = {.batch = 1, .in_flight = 1}});
  for (std::uint64_t name = 0; name < 8; ++name) {
    world.put(chain(name, 1));
  }
  (void)world.offloader->pump();  // the first is in flight, the second claimed
  Outcome outcome;
  ASSERT_TRUE(
      world.offloader->offload({.keys = {chain(0, 1)[0], chain(1, 1)[0], chain(2, 1)[0]}, .done = outcome.hear()}));
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, true));
  EXPECT_EQ(world.below().stats().registered, world.offloader->status().copied);
  EXPECT_EQ(world.below().stats().deduplicated, 0U);
  world.expect_accounts_add_up();
}

TEST(OffloadRequestTest, HigherPrioritiesGoFirstAndRaiseWhatWaits) {
  World world({.offload = kOneAtATime});
  const Keys keys = chain(1, 4);
  world.put(keys);
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .priority = 10}));
  world.settle();
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[3]}, .priority = 60}));
  world.drain();
  EXPECT_THAT(world.arrived(), ElementsAre(keys[0], keys[3], keys[1], keys[2]));
}

// A link that copies 10 blocks a second, and a deadline of 0.45 s.
TEST(OffloadRequestTest, TheQueueHoldsWhatTheLinkCopiesInTimeAndNeverLessThanASequence) {
  OffloadOptions options = kOneAtATime;
  options.deadline = milliseconds(450);
  World world({.upper = 64, .offload = options, .link = {.latency = milliseconds(100)}});
  const Keys all = chain(1, 2);
  world.put(all);
  Keys others;
  for (std::uint64_t name = 10; name < 20; ++name) {
    others.push_back(chain(name, 1)[0]);
    world.put({others.back()});
  }
  const Keys sequence = chain(2, 12);
  world.put(sequence);
  ASSERT_TRUE(world.offloader->offload({.keys = all}));
  world.drain();  // the speed is known now
  Outcome some;
  ASSERT_TRUE(world.offloader->offload({.keys = others, .done = some.hear()}));
  EXPECT_EQ(world.offloader->status().pending, 4U);
  world.drain();
  EXPECT_EQ(some.refused, (std::map<OffloadRefusal, std::uint32_t>{{OffloadRefusal::kShed, 6}}))
      << "the caller is told";
  ASSERT_TRUE(world.offloader->offload({.keys = sequence}));
  EXPECT_EQ(world.offloader->status().pending, 12U);
  world.drain();
  EXPECT_TRUE(world.is_whole_below(sequence.back()));
  world.expect_accounts_add_up();
}

TEST(OffloadRequestTest, AFullQueueShedsTheLeastValuableOrTurnsAway) {
  OffloadOptions options = kOneAtATime;
  options.queue = 2;
  World world({.offload = options});
  const Keys keys = chain(1, 6);
  world.put(keys);
  Outcome low;
  Outcome high;
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[0], keys[1], keys[2]}, .priority = 10, .done = low.hear()}));
  const auto refused = world.offloader->offload({.keys = {keys[4]}, .priority = 10});
  ASSERT_FALSE(refused);
  expect_error(refused.error(), ErrorCode::kExhausted, "more valuable");
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[5]}, .priority = 11, .done = high.hear()}));
  world.drain();
  EXPECT_THAT(low.is_below, ElementsAre(true, false, false));
  EXPECT_THAT(low.error, HasSubstr(keys[1].to_string()));
  EXPECT_THAT(high.is_below, ElementsAre(true));
  EXPECT_EQ(world.refused(OffloadRefusal::kShed), 3U) << "with the one that was refused";
  world.expect_accounts_add_up();
}

TEST(OffloadRequestTest, CancelledOnesAreNotCopiedUnlessTheyAreInFlight) {
  World world({.offload = kOneAtATime});
  const Keys keys = chain(1, 3);
  world.put(keys);
  Outcome outcome;
  Outcome other;
  const auto request = world.offloader->offload({.keys = keys, .done = outcome.hear()});
  ASSERT_TRUE(request);
  world.settle();
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[2]}, .done = other.hear()}));
  world.offloader->cancel(*request);
  world.offloader->cancel(*request);
  world.settle();
  EXPECT_EQ(outcome.times, 0) << "one is in flight";
  EXPECT_EQ(world.offloader->status().pending, 1U) << "another request needs it";
  world.drain();
  EXPECT_EQ(outcome.times, 1);
  EXPECT_THAT(outcome.is_below, ElementsAre(true, false, false));
  EXPECT_THAT(outcome.error, HasSubstr("cancelled"));
  EXPECT_THAT(other.is_below, ElementsAre(true));
  EXPECT_THAT(world.arrived(), ElementsAre(keys[0], keys[2]));
  EXPECT_EQ(world.refused(OffloadRefusal::kCancelled), 1U);
  world.offloader->cancel(*request);
  world.expect_accounts_add_up();
}

TEST(OffloadRequestTest, ADeadlineEndsTheRequestAndNotTheCopy) {
  World world({.offload = kOneAtATime, .link = {.latency = seconds(1)}});
  const Keys keys = chain(1, 3);
  world.put(keys);
  Outcome outcome;
  const TimePoint deadline = world.clock.now() + milliseconds(1500);
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .deadline = deadline, .done = outcome.hear()}));
  EXPECT_EQ(world.offloader->next_time(), deadline);
  world.run_for(milliseconds(1499));
  EXPECT_EQ(outcome.times, 0);
  world.run_for(milliseconds(2));
  EXPECT_EQ(outcome.times, 1);
  EXPECT_THAT(outcome.is_below, ElementsAre(true, false, false));
  EXPECT_THAT(outcome.error, HasSubstr("deadline"));
  EXPECT_EQ(world.offloader->next_time(), std::nullopt);
  EXPECT_EQ(world.offloader->status().in_flight, 1U);
  world.drain();
  EXPECT_EQ(outcome.times, 1);
  EXPECT_THAT(world.arrived(), ElementsAre(keys[0], keys[1]));
}

TEST(OffloadRequestTest, WhilePausedNothingIsSubmittedAndPendingBlocksWait) {
  World world({.offload = kOneAtATime});
  const Keys keys = chain(1, 3);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.offloader->pause();
  world.run_for(milliseconds(10));
  EXPECT_THAT(world.arrived(), IsEmpty());
  const auto refused = world.offloader->offload({.keys = keys});
  ASSERT_FALSE(refused);
  expect_error(refused.error(), ErrorCode::kFailedPrecondition, "paused");
  EXPECT_EQ(world.refused(OffloadRefusal::kTierOut), 3U) << "refused requests count too";
  world.offloader->resume();
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, true));
}

TEST(OffloadRequestTest, TheEndAnswersEveryRequest) {
  World world({.offload = kOneAtATime});
  const Keys keys = chain(1, 3);
  world.put(keys);
  Outcome first;
  Outcome second;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = first.hear()}));
  world.settle();
  ASSERT_TRUE(world.offloader->offload({.keys = {keys[1], keys[2]}, .done = second.hear()}));
  world.offloader->end();
  EXPECT_EQ(second.times, 0);
  (void)world.offloader->pump();
  EXPECT_EQ(second.times, 1);
  EXPECT_THAT(second.is_below, ElementsAre(false, false));
  EXPECT_EQ(first.times, 0) << "one is in flight";
  world.drain();
  EXPECT_THAT(first.is_below, ElementsAre(true, false, false));
  EXPECT_FALSE(world.offloader->offload({.keys = keys}));
}

TEST(OffloadRequestTest, OnlyTheBudgetRefusesARequest) {
  World world({.offload = {.mode = OffloadMode::kOff,
                           .least_uses = 3,
                           .least_blocks = 50,
                           .least_priority = 99,
                           .least_chance = 0.9,
                           .bytes_per_day = 24 * 2 * 64}});
  const Keys keys = chain(1, 3);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, false));
  EXPECT_THAT(outcome.error, HasSubstr("over budget"));
}

TEST(OffloadRequestTest, AFullExecutorIsTriedAgain) {
  World world({.offload = {.mode = OffloadMode::kOff, .batch = 1, .in_flight = 8},
               .link = {.latency = milliseconds(1), .limit = 2}});
  const Keys keys = chain(1, 6);
  world.put(keys);
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  world.settle();
  EXPECT_EQ(world.offloader->status().in_flight, 2U);
  EXPECT_EQ(world.offloader->status().pending, 4U);
  EXPECT_EQ(world.offloader->next_time(), std::nullopt) << "the next transfer that ends wakes it";
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true, true, true, true, true));
}

TEST(OffloadRequestTest, AnExecutorThatOthersHaveFilledIsTriedAgainSoon) {
  World world({.offload = kOff, .link = {.latency = seconds(1), .limit = 1}});
  const Keys keys = chain(1, 1);
  world.put(keys);
  const auto others = Offloader::make(*world.link, *world.registry, kOff, world.clock, [] {}, {});
  world.put(chain(2, 1));
  ASSERT_TRUE((*others)->offload({.keys = chain(2, 1)}));
  (void)(*others)->pump();
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload({.keys = keys, .done = outcome.hear()}));
  (void)world.offloader->pump();
  EXPECT_EQ(world.offloader->status().pending, 1U);
  EXPECT_EQ(world.offloader->next_time(), world.clock.now() + milliseconds(1));
  EXPECT_FALSE(world.offloader->pump());
  world.drain();
  EXPECT_THAT(outcome.is_below, ElementsAre(true));
  EXPECT_GE(world.clock.now(), seconds(2));
}

TEST(OffloadRequestTest, TheEnginesBlocksAreHeldUntilNothingTouchesThem) {
  World world({.has_upper_pool = false, .offload = kOneAtATime});
  const Keys keys = chain(1, 2);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> still = held;
  EngineBlocks blocks{.block_ids = {BlockId{7}, BlockId{3}}, .held = std::move(held)};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    write_block(world.upper_memory, blocks.block_ids[i], keys[i]);
    blocks.facts.push_back({.block = {.key = keys[i]}, .priority = 77});
  }
  Outcome outcome;
  ASSERT_TRUE(world.offloader->offload(std::move(blocks), {.keys = keys, .done = outcome.hear()}));
  world.settle();
  EXPECT_FALSE(still.expired());
  world.drain();
  EXPECT_TRUE(still.expired());
  EXPECT_THAT(outcome.is_below, ElementsAre(true, true));
  EXPECT_TRUE(world.is_whole_below(keys[0]));
  EXPECT_TRUE(world.is_whole_below(keys[1]));
  EXPECT_EQ(world.below().hold(keys).facts()[1].priority, 77U);
}

TEST(OffloadRequestTest, ACancelledRequestLetsGoOfTheEnginesBlocksThatAnotherNames) {
  World world({.has_upper_pool = false, .offload = kOneAtATime});
  const Keys keys = chain(1, 1);
  const auto at = [&](std::uint32_t block_id, std::shared_ptr<void> held) {
    write_block(world.upper_memory, BlockId{block_id}, keys[0]);
    return EngineBlocks{
        .block_ids = {BlockId{block_id}}, .facts = {{.block = {.key = keys[0]}}}, .held = std::move(held)};
  };
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> still = held;
  Outcome first;
  Outcome second;
  const auto request = world.offloader->offload(at(1, std::move(held)), {.keys = keys, .done = first.hear()});
  ASSERT_TRUE(request);
  ASSERT_TRUE(world.offloader->offload(at(2, nullptr), {.keys = keys, .done = second.hear()}));
  world.offloader->cancel(*request);
  (void)world.offloader->pump();
  EXPECT_TRUE(still.expired());
  EXPECT_THAT(first.is_below, ElementsAre(false));
  world.drain();
  EXPECT_THAT(second.is_below, ElementsAre(true));
  EXPECT_TRUE(world.is_whole_below(keys[0]));
}

TEST(OffloadRequestTest, BlocksOfTheEngineHaveOneOfEachForEach) {
  World engine({.has_upper_pool = false, .offload = kOff});
  const Keys keys = chain(1, 1);
  const EngineBlocks one{.block_ids = {BlockId{1}}, .facts = {{.block = {.key = keys[0]}}}};
  const auto code = [&](EngineBlocks blocks, OffloadRequest request) {
    const auto id = engine.offloader->offload(std::move(blocks), std::move(request));
    return id ? std::optional<ErrorCode>() : id.error().code;
  };
  EXPECT_EQ(code({.block_ids = {BlockId{1}}}, {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(one, {.keys = chain(2, 1)}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.block_ids = {BlockId{99}}, .facts = one.facts}, {}), ErrorCode::kOutOfRange);
  EXPECT_EQ(code({.block_ids = one.block_ids, .facts = {{.block = {.key = keys[0]}, .priority = 101}}}, {}),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(one, {.keys = keys}), std::nullopt);
  EXPECT_FALSE(engine.offloader->offload({.keys = keys})) << "it has no pool to find them in";
  World pooled({.offload = kOff});
  EXPECT_FALSE(pooled.offloader->offload(EngineBlocks(one), {})) << "it has a pool";
}

}  // namespace
}  // namespace cairn::testing
