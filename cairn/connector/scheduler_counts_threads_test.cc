// The counts of tokens with an engine attached: what a request asked for, where it came from, and that nothing counts twice.
#include <gmock/gmock.h>

#include "cairn/connector/scheduler_testing.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/onboard/load_cost.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using When = SchedulerConnector::Match::When;

constexpr std::size_t kPrompt = 18;  // four blocks of four tokens and two

// A request with that prompt is matched, loaded as far as it is found, and runs once.
RequestHandle run(World& world, const RequestId& id, std::uint32_t first_block, Token first = 100) {
  const RequestHandle request = world.add(id, kPrompt, first);
  const auto match = world->match(request, 0);
  EXPECT_TRUE(match.has_value());
  const auto blocks = device_blocks(5, first_block);
  EXPECT_TRUE(world->allocated(request, blocks, 0, match->tokens).has_value());
  std::size_t computed = 0;
  if (match->tokens > 0) {
    world.step();
    const std::size_t before = world.loaded.size();
    world.take_until([&] { return world.loaded.size() > before; });
    computed = world.loaded.back().tokens;
  }
  world.begin({{.request = request, .computed_tokens = computed}});
  world.compute(world.keys_of(kPrompt, first), blocks);
  world.end();
  return request;
}

TEST(SchedulerCountsTest, APromptIsAskedForOnceAndComesFromSomewhere) {
  World world(small_options());
  const RequestHandle first = run(world, "first", 0);
  EXPECT_EQ(*world->counts(first), (TokenCounts{.requests = 1, .asked = kPrompt, .computed = kPrompt}));
  ASSERT_TRUE(*world->finish(first, kPrompt));
  world.drain();
  ASSERT_EQ(world.ended.size(), 1U);
  EXPECT_EQ(world.ended[0].request, first);
  EXPECT_EQ(world.ended[0].counts,
            (TokenCounts{.requests = 1, .asked = kPrompt, .computed = kPrompt, .saved = 4 * kBlockSize}));
  EXPECT_EQ(world->counts(first).error().code, ErrorCode::kNotFound);

  const RequestHandle second = run(world, "second", 20);
  const TokenCounts loaded{
      .requests = 1, .asked = kPrompt, .found_host = 16, .loaded_host = 16, .computed = kPrompt - 16};
  EXPECT_EQ(*world->counts(second), loaded);
  const TokenReport report = world->counts();
  EXPECT_EQ(report.total.asked, 2 * kPrompt);
  EXPECT_EQ(report.total.loaded(), 16U);
  EXPECT_EQ(report.last_requests, report.total);
  EXPECT_EQ(report.last_time, report.total);
  EXPECT_TRUE(report.total.adds_up());
  EXPECT_EQ(world->manager().status().tokens->total, report.total);
  const std::string text = world->manager().metrics().to_prometheus();
  for (const char* line :
       {"cairn_asked_tokens_total 36\n", "cairn_prompt_tokens_total{source=\"host\"} 16\n",
        "cairn_prompt_tokens_total{source=\"computed\"} 20\n", "cairn_found_tokens_total{tier=\"G2\"} 16\n",
        "cairn_not_loaded_tokens_total{reason=\"failed\"} 0\n", "cairn_saved_tokens_total 16\n",
        "cairn_window_asked_tokens{window=\"requests\"} 36\n", "cairn_window_hit_rate{window=\"time\"} 0.444"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(SchedulerCountsTest, TokensOfTheEnginesOwnCacheAreOnTheDevice) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(world->match(b, 8)->tokens, 8U);
  const auto blocks = device_blocks(5, 20);
  CAIRN_SLOT_OK(world->allocated(b, blocks, 8, 8));
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(
      *world->counts(b),
      (TokenCounts{
          .requests = 1, .asked = kPrompt, .device = 8, .found_host = 8, .loaded_host = 8, .computed = kPrompt - 16}));
}

// Too much is being loaded: the request asks again and again, and computes in the end.
TEST(SchedulerCountsTest, ARequestThatIsPutOffIsCountedOnce) {
  SchedulerConnector::Options options = small_options();
  options.loading_blocks = 5;
  options.ask_again = 3;
  World world(options);
  world.save_prompt("a", kPrompt);
  world.ranks[0]->stop(true);
  const RequestHandle b = world.add("b", kPrompt);
  ASSERT_EQ(world->match(b, 0)->tokens, 16U);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  world.step();
  const RequestHandle c = world.add("c", kPrompt);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(world->match(c, 0)->when, When::kAskAgain);
    world.step();
    EXPECT_EQ(*world->counts(c), TokenCounts()) << "not before it runs";
  }
  EXPECT_EQ(world->match(c, 0)->tokens, 0U);
  const auto blocks = device_blocks(5, 30);
  world.step({{.request = c, .new_blocks = blocks}});
  EXPECT_EQ(*world->counts(c),
            (TokenCounts{.requests = 1, .asked = kPrompt, .found_host = 16, .skipped = 16, .computed = kPrompt}));
  EXPECT_EQ(world->counts().total.requests, 1U) << "b is still loaded";
  world.ranks[0]->stop(false);
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world->counts().total.requests, 2U);
}

class TwoBlocks final : public LoadCostModel {
 public:
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion&) const override { return 2; }
};

TEST(SchedulerCountsTest, WhatIsFasterToComputeIsTooSlow) {
  SchedulerConnector::Options options = small_options();
  options.parts.cost = std::make_shared<TwoBlocks>();
  options.manager.onboard.weigh = true;
  World world(options);
  world.save_prompt("a", kPrompt);
  const RequestHandle b = run(world, "b", 20);
  EXPECT_EQ(*world->counts(b), (TokenCounts{.requests = 1,
                                            .asked = kPrompt,
                                            .found_host = 16,
                                            .loaded_host = 8,
                                            .too_slow = 8,
                                            .computed = kPrompt - 8}));
}

TEST(SchedulerCountsTest, WhatALoadDoesNotBringHasFailed) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  world.ranks[0]->fail(1);
  const RequestHandle b = run(world, "b", 20);
  EXPECT_EQ(*world->counts(b),
            (TokenCounts{.requests = 1, .asked = kPrompt, .found_host = 16, .failed = 16, .computed = kPrompt}));
}

TEST(SchedulerCountsTest, TokensFromDiskAreCountedThere) {
  const TestFolder folder;
  SchedulerConnector::Options options = small_options(64, 0);
  options.manager.disk.blocks = 16;
  options.manager.disk.path = folder.in("blocks");
  World world(options);
  world.save_prompt("a", kPrompt);
  const RequestHandle b = run(world, "b", 20);
  EXPECT_EQ(
      *world->counts(b),
      (TokenCounts{.requests = 1, .asked = kPrompt, .found_disk = 16, .loaded_disk = 16, .computed = kPrompt - 16}));
}

TEST(SchedulerCountsTest, APreemptedRequestIsNotAskedForTwice) {
  World world(small_options());
  const RequestHandle a = run(world, "a", 0);
  world.step({{.request = a, .computed_tokens = kPrompt, .new_tokens = tokens(1, 900)}});
  world.drain();  // its four full blocks are saved
  world.step({}, {a});
  ASSERT_EQ(world->match(a, 0)->tokens, 16U);
  const auto blocks = device_blocks(5, 20);
  CAIRN_SLOT_OK(world->allocated(a, blocks, 0, 16));
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  const TokenCounts counts = *world->counts(a);
  EXPECT_EQ(counts.requests, 1U);
  EXPECT_EQ(counts.asked, kPrompt);
  EXPECT_EQ(counts.lost, kPrompt + 1);
  EXPECT_EQ(counts.reloaded, 16U);
  EXPECT_EQ(counts.recomputed, kPrompt + 1 - 16);
  EXPECT_TRUE(counts.adds_up());
}

TEST(SchedulerCountsTest, AnAbortedRequestThatNeverRanIsNotCounted) {
  World world(small_options());
  const RequestHandle a = world.add("a", kPrompt);
  ASSERT_TRUE(world->match(a, 0).has_value());
  EXPECT_FALSE(*world->finish(a));
  world.take_until([] { return true; });
  ASSERT_EQ(world.ended.size(), 1U);
  EXPECT_EQ(world.ended[0].counts, TokenCounts());
  EXPECT_EQ(world->counts().total, TokenCounts());
}

TEST(SchedulerCountsTest, TenantsAndWindowsAreThoseOfTheConfiguration) {
  SchedulerConnector::Options options = small_options();
  options.manager.requests.tenants = {{.name = "batch"}, {.name = "trial"}};
  options.manager.requests.window_requests = 2;
  World world(options);
  std::uint32_t block = 0;
  for (const char* tenant : {"batch", "trial", "trial", ""}) {
    const RequestHandle request =
        *world->add(std::uint64_t{block}, {.tokens = tokens(6, 100 * block), .tenant = tenant});
    ASSERT_TRUE(world->match(request, 0).has_value());
    const auto blocks = device_blocks(2, block);
    block += 2;
    world.step({{.request = request, .new_blocks = blocks}});
  }
  const TokenReport report = world->counts();
  ASSERT_EQ(report.tenants.size(), 3U);
  EXPECT_EQ(report.tenants[0].total.asked, 6U);
  EXPECT_EQ(report.tenants[1].total.asked, 6U);
  EXPECT_EQ(report.tenants[2].total.asked, 12U);
  EXPECT_EQ(report.total.asked, 24U);
  EXPECT_EQ(report.last_requests.requests, 2U);
  const std::string text = world->manager().metrics().to_prometheus();
  EXPECT_THAT(text, HasSubstr("cairn_asked_tokens_total 6\n"));
  EXPECT_THAT(text, HasSubstr("cairn_asked_tokens_total{tenant=\"trial\"} 12\n"));
  EXPECT_THAT(text, HasSubstr("cairn_prompt_tokens_total{source=\"computed\",tenant=\"batch\"} 6\n"));
}

TEST(SchedulerCountsTest, WhatAdmissionRejectsIsFiltered) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_blocks = 100;
  World world(options);
  world.save_prompt("a", kPrompt);
  EXPECT_EQ(world->counts().total, (TokenCounts{.dropped_filtered = 16}));
}

TEST(SchedulerCountsTest, SavesThatCameToNothingAreDroppedForAReason) {
  World world(small_options());
  ASSERT_TRUE(world->manager().pause(CacheLevel::kG1, CacheLevel::kG2).has_value());
  world.save_prompt("a", kPrompt);
  ASSERT_TRUE(world->manager().resume(CacheLevel::kG1, CacheLevel::kG2).has_value());
  world.ranks[0]->fail(1);
  world.save_prompt("b", kPrompt);
  const TokenCounts total = world->counts().total;
  EXPECT_EQ(total.saved, 0U);
  EXPECT_EQ(total.dropped_unavailable, 16U);
  EXPECT_EQ(total.dropped_failed, 16U);
  EXPECT_EQ(total.dropped(), 32U);
}

}  // namespace
}  // namespace cairn
