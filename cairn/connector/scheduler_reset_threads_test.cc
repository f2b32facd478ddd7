// Resets and new weights while an engine runs: nothing that was saved before is loaded after them, and nothing that was
// computed before is saved.
#include <gmock/gmock.h>

#include "cairn/connector/scheduler_testing.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kPrompt = 18;  // four blocks of four tokens and two

std::size_t matched(World& world, RequestHandle request) { return world->match(request, 0)->tokens; }

TEST(SchedulerResetTest, WhatWasSavedBeforeIsNotMatched) {
  World world(small_options(64, 64, 2));
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16U);
  EXPECT_EQ(world->reset()->reset, 4U);
  EXPECT_EQ(matched(world, b), 0U);
  world.save_prompt("c", kPrompt, 20);
  EXPECT_EQ(matched(world, b), 16U) << "what was saved since may be loaded";
}

TEST(SchedulerResetTest, ALoadInFlightBringsNothing) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  world.ranks[0]->stop(true);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16U);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 30), 0, 16));
  world.step();
  world.take_until([&] { return world.ranks[0]->held() == 1; });
  EXPECT_EQ(world->invalidate(1)->loads, 1U);
  world.ranks[0]->stop(false);
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].request, b);
  EXPECT_EQ(world.loaded[0].tokens, 0U);
  EXPECT_EQ(world.loaded[0].missing, 16U);
}

// Matched and allocated before, begun after.
TEST(SchedulerResetTest, ALoadThatWasPromisedBringsNothing) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16U);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 30), 0, 16));
  ASSERT_TRUE(world->reset());
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].missing, 16U);
}

TEST(SchedulerResetTest, SavesInFlightAreNotStored) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(5);
  world.begin({{.request = a, .new_blocks = blocks}});
  world.compute(world.keys_of(kPrompt), blocks);
  world.end();
  world.ranks[0]->stop(true);
  EXPECT_TRUE(*world->finish(a, kPrompt));
  world.step();
  world.take_until([&] { return world.ranks[0]->held() == 1; });
  EXPECT_EQ(world->invalidate(1)->copies, 4U);
  world.ranks[0]->stop(false);
  world.take_until([&] { return !world.released.empty(); });
  EXPECT_EQ(matched(world, world.add("b", kPrompt)), 0U);
  EXPECT_EQ(world->saves().lost, 4U);
}

// Its first blocks are of the old weights, and so are all blocks computed from them.
TEST(SchedulerResetTest, ARequestFromBeforeAResetIsNotSaved) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(5);
  world.begin({{.request = a, .new_blocks = blocks}});
  world.compute(world.keys_of(kPrompt), blocks);
  world.end();
  ASSERT_TRUE(world->invalidate(1));
  EXPECT_TRUE(*world->finish(a, kPrompt));
  world.drain();
  EXPECT_THAT(world.released, SizeIs(1));
  EXPECT_EQ(world->saves().asked, 4U);
  EXPECT_EQ(world->saves().lost, 4U);
  EXPECT_EQ(world->manager().host()->counts().registered, 0U);
  world.save_prompt("b", kPrompt, 20);
  EXPECT_EQ(world->saves().saved, 4U) << "requests added after the reset are saved";
  EXPECT_EQ(matched(world, world.add("c", kPrompt)), 16U);
}

TEST(SchedulerResetTest, AGenerationIsOnlyRaised) {
  World world(small_options());
  ASSERT_TRUE(world->invalidate(5));
  world.save_prompt("a", kPrompt);
  EXPECT_EQ(world->invalidate(5).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(matched(world, world.add("b", kPrompt)), 16U);
  EXPECT_EQ(world->manager().weights_generation(), 5U);
}

// The entries are in the scheduler's file.
TEST(SchedulerResetTest, NothingComesBackAfterARestart) {
  const TestFolder folder;
  SchedulerConnector::Options options = small_options();
  options.manager.disk.blocks = 64;
  options.manager.disk.path = folder.in("entries");
  options.manager.offload_to_disk.mode = OffloadMode::kOnRegistration;
  {
    World world(options);
    world.save_prompt("a", kPrompt);
    ASSERT_TRUE(world->manager().drain(kConnectorPatience));
    EXPECT_EQ(world->manager().disk()->counts().registered, 4U);
    ASSERT_TRUE(world->invalidate(1));
  }
  options.manager.model.weights_generation = 1;
  World world(options);
  EXPECT_EQ(world->manager().disk()->counts().registered, 0U);
  EXPECT_EQ(matched(world, world.add("b", kPrompt)), 0U);
}

}  // namespace
}  // namespace cairn
