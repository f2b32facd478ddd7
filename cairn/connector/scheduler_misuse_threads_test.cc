// Invalid calls of the scheduler's side: blocks that belong to other requests, progress that was never scheduled,
// multimodal items; and valid calls that look similar.
#include <gmock/gmock.h>

#include <limits>

#include "cairn/connector/scheduler_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kPrompt = 18;  // four blocks of four tokens and two

std::vector<BlockId> slots(std::initializer_list<std::uint32_t> numbers) {
  std::vector<BlockId> all;
  for (const std::uint32_t number : numbers) {
    all.push_back(BlockId{number});
  }
  return all;
}

std::string refusal(const World& world) {
  return world->refused().size() == 1 ? world->refused()[0].error.message : std::string();
}

// --- device blocks ---

TEST(SchedulerMisuseTest, ABlockIsListedOnceForARequest) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  ASSERT_EQ(world->match(b, 0)->tokens, 16);
  const Status twice = world->allocated(b, slots({20, 21, 20, 22, 23}), 0, 16);
  ASSERT_FALSE(twice.has_value());
  EXPECT_THAT(twice.error().message, HasSubstr("device block 20 is listed twice for request \"b\""));
  EXPECT_FALSE(world->allocated(b, slots({20, 20, 21, 22, 23}), 8, 0).has_value()) << "also of the engine's own cache";
  CAIRN_SLOT_OK(world->allocated(b, slots({20, 21, 22, 23, 24}), 0, 16)) << "a call that failed changed nothing";
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  const auto more = slots({22});
  world.step({{.request = b, .computed_tokens = 16, .new_blocks = more}});
  EXPECT_THAT(refusal(world), HasSubstr("device block 22 is listed twice"));
  EXPECT_FALSE(*world->finish(b));
}

TEST(SchedulerMisuseTest, ABlockThatIsWrittenBelongsToOneLiveRequest) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt, 500);
  const RequestHandle c = world.add("c", kPrompt, 700);
  const auto of_a = device_blocks(5, 0);
  world.step({{.request = a, .new_blocks = of_a}});
  // In allocated(), which is called before the preemptions of the iteration are known.
  CAIRN_SLOT_OK(world->allocated(b, slots({10, 11, 4, 12, 13}), 0, 0));
  world.step({{.request = a, .computed_tokens = kPrompt}, {.request = b}});
  EXPECT_THAT(refusal(world), HasSubstr("device block 4 of request \"b\" is in use by request \"a\""));
  // In the iteration itself.
  const auto of_c = slots({20, 3});
  world.step({{.request = c, .new_blocks = of_c}});
  EXPECT_THAT(refusal(world), HasSubstr("device block 3 of request \"c\" is in use by request \"a\""));
  EXPECT_FALSE(*world->finish(b));
  EXPECT_FALSE(*world->finish(c));
  EXPECT_TRUE(*world->finish(a)) << "the other request is unaffected";
  world.drain();
  // Blocks of finished requests are free.
  const RequestHandle d = world.add("d", kPrompt, 900);
  world.step({{.request = d, .new_blocks = of_a}});
  EXPECT_THAT(world->refused(), IsEmpty());
}

TEST(SchedulerMisuseTest, BlocksOfAPreemptedRequestAreGivenAwayInTheSameIteration) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(5, 0);
  world.step({{.request = a, .new_blocks = blocks}});
  const RequestHandle b = world.add("b", kPrompt, 500);
  CAIRN_SLOT_OK(world->allocated(b, blocks, 0, 0));
  world.step({{.request = b}}, {a});
  EXPECT_THAT(world->refused(), IsEmpty());
  const auto others = device_blocks(5, 30);
  world.step({{.request = a, .new_blocks = others}, {.request = b, .computed_tokens = 18}});
  EXPECT_THAT(world->refused(), IsEmpty());
}

TEST(SchedulerMisuseTest, WhatTheEngineHasCachedIsShared) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  const auto of_a = device_blocks(5, 0);
  world.step({{.request = a, .new_blocks = of_a}});
  world.step({{.request = a, .computed_tokens = kPrompt}});
  const RequestHandle b = world.add("b", kPrompt);
  ASSERT_TRUE(world->match(b, 12).has_value());
  CAIRN_SLOT_OK(world->allocated(b, slots({0, 1, 2, 20, 21}), 12, 0));
  const RequestHandle c = world.add("c", kPrompt);
  ASSERT_TRUE(world->match(c, 8).has_value());
  const auto of_c = slots({0, 1, 30, 31, 32});
  world.step({{.request = b, .computed_tokens = 12}, {.request = c, .computed_tokens = 8, .new_blocks = of_c}});
  EXPECT_THAT(world->refused(), IsEmpty());
  // The block after the shared ones belongs to the request alone.
  const RequestHandle d = world.add("d", kPrompt);
  ASSERT_TRUE(world->match(d, 8).has_value());
  CAIRN_SLOT_OK(world->allocated(d, slots({0, 1, 2, 40, 41}), 8, 0));
  world.step({{.request = d, .computed_tokens = 8}});
  EXPECT_THAT(refusal(world), HasSubstr("device block 2 of request \"d\" is in use by"));
}

TEST(SchedulerMisuseTest, ABlockThatALoadStillWritesToIsNotShared) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  ASSERT_EQ(world->match(b, 0)->tokens, 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  world.ranks[0]->stop(true);
  world.step();
  const RequestHandle c = world.add("c", kPrompt);
  ASSERT_TRUE(world->match(c, 16).has_value());
  CAIRN_SLOT_OK(world->allocated(c, slots({20, 21, 22, 23, 40}), 16, 0));
  world.step({{.request = c, .computed_tokens = 16}});
  EXPECT_THAT(refusal(world), HasSubstr("device block 20 of request \"c\" is in use by request \"b\""));
  world.ranks[0]->stop(false);
  world.take_until([&] { return !world.loaded.empty(); });
  const RequestHandle d = world.add("d", kPrompt);
  ASSERT_TRUE(world->match(d, 16).has_value());
  CAIRN_SLOT_OK(world->allocated(d, slots({20, 21, 22, 23, 41}), 16, 0));
  world.step({{.request = d, .computed_tokens = 16}});
  EXPECT_THAT(world->refused(), IsEmpty());
}

// --- progress ---

TEST(SchedulerMisuseTest, ProgressThatWasNeverScheduledIsRefused) {
  World world(small_options());
  const auto blocks = device_blocks(5, 0);
  // After the iteration instead of before it: the first chunk of a prompt.
  const RequestHandle a = world.add("a", kPrompt);
  world.step({{.request = a, .computed_tokens = 8, .new_blocks = blocks}});
  EXPECT_THAT(refusal(world), HasSubstr("8 tokens of request \"a\" are said to be computed, but at most 0 can be"));
  EXPECT_THAT(refusal(world), HasSubstr("computed_tokens counts before the iteration, not after it"));
  // A token that comes with this iteration was not computed before it.
  const RequestHandle b = world.add("b", kPrompt, 500);
  const auto of_b = device_blocks(5, 10);
  world.step({{.request = b, .new_blocks = of_b}});
  const std::vector<Token> sampled = {7};
  world.step({{.request = b, .computed_tokens = kPrompt + 1, .new_tokens = sampled}});
  EXPECT_THAT(refusal(world), HasSubstr("at most 18 can be"));
  // After a preemption nothing is computed.
  const RequestHandle c = world.add("c", kPrompt, 700);
  const auto of_c = device_blocks(5, 20);
  world.step({{.request = c, .new_blocks = of_c}});
  world.step({}, {c});
  world.step({{.request = c, .computed_tokens = 8, .new_blocks = of_c}});
  EXPECT_THAT(refusal(world), HasSubstr("at most 0 can be"));
  // A request cannot end with more either.
  const RequestHandle d = world.add("d", kPrompt, 900);
  const auto of_d = device_blocks(5, 30);
  world.step({{.request = d, .new_blocks = of_d, .scheduled_tokens = 8}});
  EXPECT_FALSE(world->finish(d, kPrompt).has_value()) << "eight were scheduled";
  EXPECT_FALSE(world->finish(d, std::numeric_limits<std::size_t>::max()).has_value());
  EXPECT_TRUE(*world->finish(d, 8));
  world.drain();
}

TEST(SchedulerMisuseTest, ScheduledTokensSayWhatAChunkComputes) {
  World world(small_options());
  const auto blocks = device_blocks(6, 0);
  const RequestHandle a = world.add("a", kPrompt);
  world.step({{.request = a, .new_blocks = blocks, .scheduled_tokens = 8}});
  world.step({{.request = a, .computed_tokens = 8, .scheduled_tokens = 10}});
  EXPECT_THAT(world->refused(), IsEmpty());
  // A token is scheduled before it is known, and passed in an iteration later.
  world.step({{.request = a, .computed_tokens = 18, .scheduled_tokens = 1}});
  const std::vector<Token> sampled = {7};
  world.step({{.request = a, .computed_tokens = 19, .new_tokens = sampled, .scheduled_tokens = 1}});
  EXPECT_THAT(world->refused(), IsEmpty());
  world.step({{.request = a, .computed_tokens = 21, .scheduled_tokens = std::numeric_limits<std::size_t>::max()}});
  EXPECT_THAT(refusal(world), HasSubstr("at most 20 can be"));
}

TEST(SchedulerMisuseTest, RejectedDraftTokensWereNotComputed) {
  World world(small_options());
  const auto blocks = device_blocks(7, 0);
  const RequestHandle a = world.add("a", kPrompt);
  world.step({{.request = a, .new_blocks = blocks}});
  const std::vector<Token> sampled = {7};
  const std::vector<Token> drafts = {8, 9};
  world.step({{.request = a, .computed_tokens = 18, .new_tokens = sampled, .draft_tokens = drafts}});
  world.step({{.request = a, .computed_tokens = 20, .new_tokens = sampled, .accepted_draft_tokens = 1}});
  EXPECT_THAT(world->refused(), IsEmpty());
  world.step({{.request = a, .computed_tokens = 21, .draft_tokens = drafts}});
  EXPECT_THAT(world->refused(), IsEmpty());
  world.step({{.request = a, .computed_tokens = 23, .new_tokens = sampled, .accepted_draft_tokens = 1}});
  EXPECT_THAT(refusal(world), HasSubstr("at most 22 can be"));
}

TEST(SchedulerMisuseTest, NumbersBeyondAllBounds) {
  World world(small_options());
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  const RequestHandle a = world.add("a", kPrompt);
  EXPECT_EQ(world->match(a, kHuge)->tokens, 0);
  EXPECT_FALSE(world->allocated(a, device_blocks(5), kHuge, 0).has_value());
  EXPECT_FALSE(world->allocated(a, device_blocks(5), 0, kHuge).has_value());
  EXPECT_FALSE(world->allocated(a, device_blocks(5), kHuge - 3, 4).has_value());
  const auto blocks = device_blocks(5, 0);
  world.step({{.request = a, .computed_tokens = kHuge, .new_blocks = blocks, .accepted_draft_tokens = kHuge}});
  EXPECT_THAT(world->refused(), SizeIs(1));
  EXPECT_FALSE(*world->finish(a));
}

// --- multimodal items ---

MmRun image(std::uint64_t hash, std::uint64_t offset, std::uint32_t length) {
  return {.offset = offset, .length = length, .mm_hash = hash};
}

TEST(SchedulerMisuseTest, ImagesThatComeWithLaterTokensHaveTheirOwnKeys) {
  World world(small_options());
  const std::vector<Token> placeholders(6, 9);
  const auto run = [&](const RequestId& id, std::uint64_t hash, std::uint32_t first_block) {
    const RequestHandle request = world.add(id, kPrompt);
    const auto blocks = device_blocks(6, first_block);
    const std::vector<MmRun> runs = {image(hash, kPrompt, 6)};
    world.step({{.request = request, .new_blocks = blocks}});
    world.step({{.request = request, .computed_tokens = kPrompt, .new_tokens = placeholders, .new_runs = runs}});
    EXPECT_THAT(world->refused(), IsEmpty());
    EXPECT_TRUE(*world->finish(request, kPrompt + 6));
    world.drain();
  };
  run("one", 1, 0);
  run("two", 2, 10);
  std::vector<Token> whole = tokens(kPrompt, 100);
  whole.insert(whole.end(), placeholders.begin(), placeholders.end());
  whole.push_back(5);
  const auto hits = [&](const RequestId& id, std::vector<MmRun> runs) {
    const RequestHandle request = *world->add(id, {.tokens = whole, .mm_runs = runs});
    const std::size_t found = world->match(request, 0)->tokens;
    EXPECT_FALSE(*world->finish(request));
    return found;
  };
  EXPECT_EQ(hits("first again", {image(1, kPrompt, 6)}), 24);
  EXPECT_EQ(hits("second again", {image(2, kPrompt, 6)}), 24);
  EXPECT_EQ(hits("another image", {image(3, kPrompt, 6)}), 16);
  EXPECT_EQ(hits("no image", {}), 16);
}

TEST(SchedulerMisuseTest, RunsAreWithinTheTokensTheyComeWith) {
  World world(small_options());
  EXPECT_FALSE(world->add("x", {.tokens = tokens(kPrompt, 100), .mm_runs = std::vector{image(1, 16, 6)}}).has_value());
  const RequestHandle a = world.add("a", kPrompt);
  const auto blocks = device_blocks(6, 0);
  world.step({{.request = a, .new_blocks = blocks}});
  const std::vector<Token> more(2, 9);
  const std::vector<MmRun> before = {image(1, 4, 2)};
  world.step({{.request = a, .computed_tokens = kPrompt, .new_tokens = more, .new_runs = before}});
  EXPECT_THAT(refusal(world), HasSubstr("inside the tokens they come with"));
  const RequestHandle b = world.add("b", kPrompt, 500);
  world.step({{.request = b, .new_blocks = std::span(blocks).first(0), .new_runs = before}});
  EXPECT_THAT(refusal(world), HasSubstr("new_runs come without new_tokens"));
}

TEST(SchedulerMisuseTest, ImagesThatComeBesideALoadAreChecked) {
  SchedulerConnector::Options options = small_options();
  options.load = LoadMode::kInStep;
  World world(options);
  world.save_prompt("a", kPrompt);
  const std::vector<Token> placeholders(6, 9);
  const auto start = [&](const RequestId& id, std::uint32_t first_block) {
    const RequestHandle request = world.add(id, kPrompt);
    EXPECT_EQ(world->match(request, 0)->tokens, 16);
    EXPECT_TRUE(is_ok(world->allocated(request, device_blocks(7, first_block), 0, 16)));
    world.ranks[0]->stop(true);
    world.begin({{.request = request, .computed_tokens = 16}});
    return request;
  };
  const RequestHandle b = start("b", 20);
  const std::vector<MmRun> wrong = {image(1, 4, 2)};
  world.begin({{.request = b, .computed_tokens = 18, .new_tokens = placeholders, .new_runs = wrong}});
  EXPECT_THAT(refusal(world), HasSubstr("inside the tokens they come with"));
  const RequestHandle c = start("c", 30);
  const std::vector<MmRun> runs = {image(1, kPrompt, 6)};
  world.begin({{.request = c, .computed_tokens = 18, .new_tokens = placeholders, .new_runs = runs}});
  EXPECT_THAT(world->refused(), IsEmpty());
  world.ranks[0]->stop(false);
  world.take_until([&] { return world.loaded.size() == 2; });
  world.end();
  EXPECT_TRUE(*world->finish(c, kPrompt + 6));
  EXPECT_FALSE(*world->finish(b));
  world.drain();
  std::vector<Token> whole = tokens(kPrompt, 100);
  whole.insert(whole.end(), placeholders.begin(), placeholders.end());
  whole.push_back(5);
  EXPECT_EQ(world->match(*world->add("d", {.tokens = whole, .mm_runs = runs}), 0)->tokens, 24);
  EXPECT_EQ(world->match(*world->add("e", {.tokens = whole}), 0)->tokens, 16);
}

}  // namespace
}  // namespace cairn
