// What a request says of its blocks reaches the tiers: priority, times, hints, tenant, and the engine's own digests.
#include <gmock/gmock.h>

#include "cairn/base/clock.h"
#include "cairn/connector/scheduler_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;
using NewRequest = SchedulerConnector::NewRequest;

constexpr std::size_t kPrompt = 4 * kBlockSize + 2;

// A request runs from its beginning to its end, and its four full blocks are saved from device blocks `first` on.
void save(World& world, const RequestId& id, const NewRequest& request, std::uint32_t first) {
  const Result<RequestHandle> handle = world->add(id, request);
  ASSERT_TRUE(handle.has_value()) << handle.error().message;
  const std::vector<BlockId> blocks = device_blocks(5, first);
  world.step({{.request = *handle, .new_blocks = blocks}});
  ASSERT_TRUE(world->refused().empty()) << world->refused()[0].error.message;
  ASSERT_TRUE(*world->finish(*handle, kPrompt));
  world.drain();
}

std::size_t stored(World& world, Token first) {
  const std::vector<BlockKey> keys = world.keys_of(kPrompt, first);
  return world->manager().locate(keys).blocks();
}
BlockFacts facts_of(World& world, Token first) {
  const auto seen = world->manager().host()->peek(std::vector{world.keys_of(kPrompt, first)[0]});
  return seen.at(0) ? seen[0]->facts : BlockFacts{};
}

TEST(SchedulerRequestsTest, PriorityDecidesWhichBlocksAreEvicted) {
  World world(small_options(64, 8));
  const auto first = tokens(kPrompt, 100);
  const auto second = tokens(kPrompt, 200);
  save(world, "first", {.tokens = first, .priority = 90}, 0);
  save(world, "second", {.tokens = second, .priority = 10}, 8);
  EXPECT_EQ(facts_of(world, 100).priority, 90);
  EXPECT_EQ(facts_of(world, 200).priority, 10);
  save(world, "third", {.tokens = tokens(kPrompt, 300)}, 16);
  EXPECT_EQ(facts_of(world, 300).priority, 50) << "of the configuration";
  EXPECT_EQ(stored(world, 100), 4) << "older, and more valuable";
  EXPECT_EQ(stored(world, 200), 0);
  EXPECT_EQ(stored(world, 300), 4);
  EXPECT_EQ(world->add("x", {.tokens = first, .priority = 101}).error().code, ErrorCode::kInvalidArgument);
}

TEST(SchedulerRequestsTest, TheConfigurationHasTheDefaults) {
  SchedulerConnector::Options options = small_options(64, 8);
  options.manager.requests = {.priority = 7, .retention = true, .time_to_live = std::chrono::minutes(1)};
  World world(options);
  save(world, "first", {.tokens = tokens(kPrompt, 100)}, 0);
  EXPECT_EQ(facts_of(world, 100).priority, 7);
  EXPECT_EQ(facts_of(world, 100).time_to_live_ms, 60'000);
  save(world, "second", {.tokens = tokens(kPrompt, 200), .time_to_live = std::chrono::seconds(5)}, 8);
  EXPECT_EQ(facts_of(world, 200).time_to_live_ms, 5'000);
}

TEST(SchedulerRequestsTest, BlocksAreGoneAfterTheirTimeToLive) {
  ManualClock clock;
  clock.advance(steady_clock().now());  // deadlines are compared with the clock of the ranks
  SchedulerConnector::Options options = small_options(64, 8);
  options.manager.requests.retention = true;
  options.parts.clock = &clock;
  World world(options);
  save(world, "short", {.tokens = tokens(kPrompt, 100), .time_to_live = std::chrono::seconds(60)}, 0);
  save(world, "long", {.tokens = tokens(kPrompt, 200)}, 8);
  EXPECT_EQ(stored(world, 100), 4);
  clock.advance(std::chrono::seconds(61));
  save(world, "other", {.tokens = tokens(kPrompt, 300)}, 16);
  EXPECT_EQ(stored(world, 100), 0);
  EXPECT_EQ(stored(world, 200), 4) << "though it is as old";
}

TEST(SchedulerRequestsTest, ASessionThatHasEndedIsEvictedFirst) {
  SchedulerConnector::Options options = small_options(64, 8);
  options.manager.requests.retention = true;
  World world(options);
  save(world, "first", {.tokens = tokens(kPrompt, 100)}, 0);
  save(world, "second", {.tokens = tokens(kPrompt, 200), .hint = {.kind = RetentionHint::Kind::kWillNotReturn}}, 8);
  save(world, "third", {.tokens = tokens(kPrompt, 300)}, 16);
  EXPECT_EQ(stored(world, 100), 4) << "though it is the oldest";
  EXPECT_EQ(stored(world, 200), 0);
}

TEST(SchedulerRequestsTest, TimesAndHintsNeedTheSetting) {
  World world(small_options(64, 8));
  const auto prompt = tokens(kPrompt, 100);
  for (const NewRequest& request :
       {NewRequest{.tokens = prompt, .time_to_live = std::chrono::seconds(1)},
        NewRequest{.tokens = prompt, .priority_duration = std::chrono::seconds(1)},
        NewRequest{.tokens = prompt, .hint = {.kind = RetentionHint::Kind::kSystemPrompt}}}) {
    const Result<RequestHandle> added = world->add("a", request);
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().code, ErrorCode::kFailedPrecondition);
    EXPECT_THAT(added.error().message, HasSubstr("requests.retention"));
  }
}

TEST(SchedulerRequestsTest, ATenantHasNoMoreThanItsQuota) {
  SchedulerConnector::Options options = small_options(64, 8);
  options.manager.requests.tenants = {{.name = "trial", .reserved = 0, .limit = 2}};
  World world(options);
  save(world, "first", {.tokens = tokens(kPrompt, 100)}, 0);
  save(world, "second", {.tokens = tokens(kPrompt, 200), .tenant = "trial"}, 8);
  const BlockPool& host = *world->manager().host();
  EXPECT_EQ(host.usage(kDefaultTenant)->used, 4);
  EXPECT_EQ(host.usage(TenantId{1})->used, 2);
  EXPECT_EQ(stored(world, 100), 4);
  EXPECT_LE(stored(world, 200), 2);
  const Result<RequestHandle> unknown = world->add("a", {.tokens = tokens(kPrompt), .tenant = "nobody"});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.error().message, HasSubstr("requests.tenants"));
}

// Digests as an engine makes them: `size` bytes for each block.
std::vector<std::byte> digests(std::size_t blocks, std::size_t size, unsigned char first) {
  std::vector<std::byte> bytes(blocks * size);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(first + i);
  }
  return bytes;
}

class EngineDigestsTest : public ::testing::TestWithParam<std::pair<KeyScheme, std::size_t>> {};

TEST_P(EngineDigestsTest, DigestsOfTheEngineTakeThePlaceOfTokens) {
  const auto [scheme, size] = GetParam();
  SchedulerConnector::Options options = small_options(64, 16);
  options.manager.model.scheme = scheme;
  World world(options);
  const auto prompt = tokens(kPrompt);
  const auto same = digests(5, size, 1);
  const auto of_prompt = std::span(same).first(4 * size);
  save(world, "first", {.tokens = prompt, .block_digests = {of_prompt, size}}, 0);

  const RequestHandle again = *world->add("again", {.tokens = prompt, .block_digests = {of_prompt, size}});
  EXPECT_EQ(world->match(again, 0)->tokens, 4 * kBlockSize);
  const auto others = digests(4, size, 77);
  const RequestHandle other = *world->add("other", {.tokens = prompt, .block_digests = {others, size}});
  EXPECT_EQ(world->match(other, 0)->tokens, 0) << "the same tokens, but the engine says otherwise";
  EXPECT_FALSE(*world->finish(other));

  // The block that decoding fills is saved by the digest that comes with it.
  const auto blocks = device_blocks(6, 20);
  world.step({{.request = again, .new_blocks = blocks}});
  const auto more = tokens(2, 900);
  world.step({{.request = again,
               .computed_tokens = kPrompt,
               .new_tokens = more,
               .new_block_digests = {std::span(same).subspan(4 * size), size}}});
  ASSERT_TRUE(world->refused().empty()) << world->refused()[0].error.message;
  ASSERT_TRUE(*world->finish(again, kPrompt + 2));
  world.drain();
  auto longer = tokens(kPrompt);
  longer.insert(longer.end(), {900, 901, 902});
  const RequestHandle third = *world->add("third", {.tokens = longer, .block_digests = {same, size}});
  EXPECT_EQ(world->match(third, 0)->tokens, 5 * kBlockSize);
  EXPECT_FALSE(*world->finish(third));

  EXPECT_EQ(world->add("none", {.tokens = prompt}).error().code, ErrorCode::kFailedPrecondition);
  const auto many = digests(5, size, 1);
  EXPECT_EQ(world->add("many", {.tokens = prompt, .block_digests = {many, size}}).error().code, ErrorCode::kOutOfRange);
  EXPECT_FALSE(world->add("odd", {.tokens = prompt, .block_digests = {std::span(many).first(size + 1), size}}));
}

INSTANTIATE_TEST_SUITE_P(Schemes, EngineDigestsTest,
                         ::testing::Values(std::pair(KeyScheme::kVllm, std::size_t{32}),
                                           std::pair(KeyScheme::kVllm, std::size_t{16}),
                                           std::pair(KeyScheme::kSglang, std::size_t{32}),
                                           std::pair(KeyScheme::kRouter, std::size_t{8})));

TEST(SchedulerRequestsTest, ARequestOfAnotherDataParallelRankIsRefused) {
  World alone(small_options(64, 8));
  EXPECT_TRUE(alone->add("zero", {.tokens = tokens(kPrompt), .dp_rank = 0})) << "an engine that is not data parallel";
  EXPECT_EQ(alone->add("one", {.tokens = tokens(kPrompt), .dp_rank = 1}).error().code, ErrorCode::kInvalidArgument);

  SchedulerConnector::Options options = small_options(64, 8);
  options.manager.dp_rank = 3;
  World world(options);
  EXPECT_TRUE(world->add("a", {.tokens = tokens(kPrompt), .dp_rank = 3}));
  EXPECT_TRUE(world->add("b", {.tokens = tokens(kPrompt)})) << "not said";
  const auto refused = world->add("c", {.tokens = tokens(kPrompt), .dp_rank = 2});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is for data parallel rank 2, but this connector is of rank 3"));
  EXPECT_FALSE(world->find("c"));
}

TEST(SchedulerRequestsTest, DigestsAreRefusedWhereKeysAreMadeFromTokens) {
  World world(small_options(64, 8));
  const auto bytes = digests(4, 32, 1);
  EXPECT_EQ(world->add("a", {.tokens = tokens(kPrompt), .block_digests = {bytes, 32}}).error().code,
            ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cairn
