// Which blocks the tiers keep with an engine attached: what counts as a use of a block, and which saves are rejected.
#include <gmock/gmock.h>

#include <memory>
#include <mutex>
#include <semaphore>
#include <stdexcept>

#include "cairn/connector/scheduler_testing.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using NewRequest = SchedulerConnector::NewRequest;

constexpr std::size_t kPrompt = 4 * kBlockSize + 2;

// A request with the prompt runs to its end; the engine has its first `local` tokens in its cache and computes the rest.
void run(World& world, const RequestId& id, const NewRequest& request, std::size_t local = 0) {
  const std::size_t prompt = request.tokens.size();
  const Result<RequestHandle> handle = world->add(id, request);
  ASSERT_TRUE(handle.has_value()) << handle.error().message;
  ASSERT_TRUE(world->match(*handle, local).has_value());
  ASSERT_TRUE(world->match(*handle, local).has_value()) << "again, as if the engine had no room at first";
  const std::vector<BlockId> blocks = device_blocks(prompt / kBlockSize + 1, 0);
  world.begin({{.request = *handle, .computed_tokens = local, .new_blocks = blocks}});
  ASSERT_TRUE(world->refused().empty()) << world->refused()[0].error.message;
  world.compute(world.keys_of(prompt, request.tokens[0]), blocks);
  world.end();
  ASSERT_TRUE(world->finish(*handle, prompt).has_value());
  world.drain();
}
// How many blocks of the prompt that begins with this token the tiers have.
std::size_t stored(World& world, std::size_t prompt = kPrompt, Token first = 100) {
  return world->manager().locate(world.keys_of(prompt, first)).blocks();
}

// A request loads what the tiers have of the prompt into device blocks from `first_block` on, and ends.
std::size_t load_prompt(World& world, const RequestId& id, std::uint32_t first_block) {
  const RequestHandle request = world.add(id, kPrompt);
  const std::size_t found = world->match(request, 0)->tokens;
  EXPECT_TRUE(world->allocated(request, device_blocks(5, first_block), 0, found).has_value());
  world.drain();
  EXPECT_TRUE(world->finish(request).has_value());
  world.drain();
  return found;
}

TEST(SchedulerAdmissionTest, EveryLoadOfAHostBlockIsAUseForTheDisk) {
  const TestFolder folder;
  SchedulerConnector::Options options = small_options();
  options.manager.disk.blocks = 64;
  options.manager.disk.path = folder.in("entries");
  options.manager.offload_to_disk.least_uses = 3;
  World world(options);
  const KvBlockManager& manager = world->manager();
  world.save_prompt("a", kPrompt);
  const std::vector<BlockKey> keys = world.keys_of(kPrompt);
  EXPECT_EQ(load_prompt(world, "b", 8), 16U);
  ASSERT_TRUE(manager.drain(kConnectorPatience));
  EXPECT_EQ(manager.disk()->count_prefix(keys), 0U) << "saved and loaded: two uses";
  EXPECT_EQ(load_prompt(world, "c", 16), 16U);
  ASSERT_TRUE(manager.drain(kConnectorPatience));
  EXPECT_EQ(manager.disk()->count_prefix(keys), 4U) << "loaded again";
}

TEST(SchedulerAdmissionTest, ABlockIsKeptTheSecondTimeThatARequestHasIt) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_uses = 2;
  World world(options);
  const std::vector<Token> prompt = tokens(kPrompt, 100);
  run(world, "a", {.tokens = prompt});
  EXPECT_EQ(stored(world), 0U) << "its matches and its save are one use";
  SchedulerConnector::SaveStatus saves = world->saves();
  EXPECT_EQ(saves.asked, 4U);
  EXPECT_EQ(saves.too_few_uses, 1U);
  EXPECT_EQ(saves.no_parent, 3U);
  run(world, "b", {.tokens = prompt});
  EXPECT_EQ(stored(world), 4U);
  saves = world->saves();
  EXPECT_EQ(saves.saved, 4U);
  EXPECT_EQ(saves.lost, 0U);
  EXPECT_EQ(load_prompt(world, "c", 8), 16U);
}

TEST(SchedulerAdmissionTest, ASaveWithoutAMatchIsAUseToo) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_uses = 2;
  World world(options);
  world.save_prompt("a", kPrompt);
  EXPECT_EQ(stored(world), 0U);
  world.save_prompt("b", kPrompt);
  EXPECT_EQ(stored(world), 4U);
}

// What an engine keeps in its own cache is never computed again: without it, nothing that comes after it could be loaded.
TEST(SchedulerAdmissionTest, BlocksOfTheEnginesCacheAreSavedOnceTheyHaveTheirUses) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_uses = 2;
  World world(options);
  const std::vector<Token> prompt = tokens(kPrompt, 100);
  run(world, "a", {.tokens = prompt});
  EXPECT_EQ(stored(world), 0U);
  run(world, "b", {.tokens = prompt}, 2 * kBlockSize);
  EXPECT_EQ(stored(world), 4U);
  EXPECT_EQ(load_prompt(world, "c", 8), 16U);
  EXPECT_TRUE(world.hold(world.keys_of(kPrompt), device_blocks(4, 8)));
}

TEST(SchedulerAdmissionTest, OfTwoPromptsTheSharedPrefixIsKept) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_uses = 2;
  World world(options);
  std::vector<Token> other = tokens(kPrompt, 100);
  run(world, "a", {.tokens = other});
  other[2 * kBlockSize] += 1000;  // in the third block
  run(world, "b", {.tokens = other});
  EXPECT_EQ(stored(world), 2U);
  EXPECT_EQ(world->saves().too_few_uses, 2U);
  EXPECT_EQ(world->saves().no_parent, 4U);
}

TEST(SchedulerAdmissionTest, PriorityAndLengthDecideToo) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_priority = 30;
  options.manager.offload_to_host.least_blocks = 3;
  World world(options);
  run(world, "low", {.tokens = tokens(kPrompt, 100), .priority = 29});
  EXPECT_EQ(stored(world), 0U);
  EXPECT_EQ(world->saves().low_priority, 1U);
  run(world, "short", {.tokens = tokens(2 * kBlockSize + 1, 200)});
  EXPECT_EQ(stored(world, 2 * kBlockSize + 1, 200), 0U);
  EXPECT_EQ(world->saves().too_short, 1U);
  run(world, "good", {.tokens = tokens(kPrompt, 100), .priority = 30});
  EXPECT_EQ(stored(world), 4U);
}

TEST(SchedulerAdmissionTest, TheFirstChunkOfALongPromptIsNotShort) {
  SchedulerConnector::Options options = small_options();
  options.manager.offload_to_host.least_blocks = 4;
  World world(options);
  const RequestHandle request = world.add("a", kPrompt);
  const std::vector<BlockId> blocks = device_blocks(5, 0);
  world.step({{.request = request, .new_blocks = blocks, .scheduled_tokens = kBlockSize}});
  world.step({{.request = request, .computed_tokens = kBlockSize}});
  EXPECT_TRUE(world->finish(request, kPrompt).has_value());
  world.drain();
  EXPECT_EQ(stored(world), 4U);
}

TEST(SchedulerAdmissionTest, AFilterOfTheUsersIsAskedAboutEverySave) {
  struct Call {
    std::string request;
    std::uint64_t sequence_tokens = 0;
    std::vector<std::uint32_t> uses;
    TenantId tenant = kDefaultTenant;
    std::uint32_t priority = 0;
  };
  std::mutex mutex;
  std::vector<Call> calls;
  SchedulerConnector::Options options = small_options();
  options.manager.requests.tenants = {{.name = "public"}, {.name = "private"}};
  options.parts.offload_filter_limit = std::chrono::hours(1);
  options.parts.offload_filter = [&](const FilteredRun& asked, std::span<bool> keep) {
    const std::lock_guard lock(mutex);
    Call& call = calls.emplace_back();
    EXPECT_EQ(asked.from, CacheLevel::kG1);
    EXPECT_EQ(asked.to, CacheLevel::kG2);
    call.request = asked.request;
    call.sequence_tokens = asked.sequence_tokens;
    for (std::size_t i = 0; i < keep.size(); ++i) {
      call.uses.push_back(asked.blocks[i].uses);
      call.tenant = asked.blocks[i].tenant;
      call.priority = asked.blocks[i].priority;
      keep[i] = asked.blocks[i].tenant != TenantId{2} && asked.blocks[i].key.position() < 3;
    }
  };
  World world(options);
  run(world, "hidden", {.tokens = tokens(kPrompt, 100), .priority = 80, .tenant = "private"});
  EXPECT_EQ(stored(world), 0U);
  EXPECT_EQ(world->saves().filtered, 1U);
  EXPECT_EQ(world->saves().no_parent, 3U);
  run(world, std::uint64_t{7}, {.tokens = tokens(kPrompt, 100), .tenant = "public"});
  EXPECT_EQ(stored(world), 3U);
  EXPECT_EQ(world->saves().filtered, 2U);
  ASSERT_EQ(calls.size(), 2U) << "one call for the blocks of a save";
  EXPECT_EQ(calls[0].request, "hidden");
  EXPECT_EQ(calls[0].sequence_tokens, kPrompt);
  EXPECT_THAT(calls[0].uses, ElementsAre(1U, 1U, 1U, 1U));
  EXPECT_EQ(calls[0].tenant, TenantId{2});
  EXPECT_EQ(calls[0].priority, 80U);
  EXPECT_EQ(calls[1].request, "7");
  EXPECT_THAT(calls[1].uses, ElementsAre(2U, 2U, 2U, 2U));
  EXPECT_EQ(calls[1].tenant, TenantId{1});
}

TEST(SchedulerAdmissionTest, AFilterThatThrowsIsANoAndAnIncident) {
  std::mutex mutex;
  std::vector<std::string> incidents;
  SchedulerConnector::Options options = small_options();
  options.parts.offload_filter_limit = std::chrono::hours(1);
  options.parts.offload_filter = [](const FilteredRun&, std::span<bool>) { throw std::runtime_error("of the user"); };
  options.parts.on_incident = [&](const Incident& incident) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(incident.kind, Incident::Kind::kOffloadFilter);
    EXPECT_EQ(incident.level, CacheLevel::kG2);
    incidents.push_back(incident.text);
  };
  World world(options);
  run(world, "a", {.tokens = tokens(kPrompt, 100)});
  EXPECT_EQ(stored(world), 0U);
  EXPECT_EQ(world->saves().filtered, 1U);
  EXPECT_THAT(incidents, ElementsAre(HasSubstr("threw an exception")));
  EXPECT_EQ(world->manager().status().offload.at(0).filter_failures, 1U);
}

// The limit is measured by the clock that is given: the filter itself moves it.
TEST(SchedulerAdmissionTest, AFilterThatIsAlwaysSlowIsBypassed) {
  ManualClock clock;
  SchedulerConnector::Options options = small_options();
  options.parts.clock = &clock;
  options.ranks.clock = &clock;
  int calls = 0;
  options.parts.offload_filter = [&](const FilteredRun&, std::span<bool>) {
    ++calls;
    clock.advance(std::chrono::milliseconds(2));
  };
  World world(options);
  for (std::uint64_t i = 0; i < 10; ++i) {
    run(world, i, {.tokens = tokens(kBlockSize + 1, static_cast<Token>(1000 * (i + 1)))});
  }
  EXPECT_EQ(calls, 8);
  EXPECT_EQ(world->saves().saved, 8U) << "an answer that is late holds";
  EXPECT_EQ(world->saves().filtered, 2U);
  const OffloadStatus status = world->manager().status().offload.at(0);
  EXPECT_EQ(status.filter_overruns, 8U);
  EXPECT_TRUE(status.is_filter_bypassed);
  EXPECT_EQ(world->manager().status().incident_count, 2U) << "slow, bypassed";
}

// Loads go on, and the end does not wait for it.
TEST(SchedulerAdmissionTest, AFilterThatDoesNotReturnBlocksNothing) {
  const auto may_return = std::make_shared<std::counting_semaphore<>>(1);
  const auto has_returned = std::make_shared<std::counting_semaphore<>>(0);
  SchedulerConnector::Options options = small_options();
  options.parts.offload_filter_limit = std::chrono::milliseconds(200);
  options.parts.offload_filter = [may_return, has_returned](const FilteredRun&, std::span<bool>) {
    may_return->acquire();
    has_returned->release();
  };
  {
    World world(options);
    run(world, "a", {.tokens = tokens(kPrompt, 100)});
    ASSERT_EQ(stored(world), 4U);
    run(world, "b", {.tokens = tokens(kPrompt, 200)});
    run(world, "c", {.tokens = tokens(kPrompt, 300)});
    EXPECT_EQ(stored(world), 4U) << "the answer is no";
    EXPECT_EQ(world->saves().filtered, 2U);
    EXPECT_EQ(load_prompt(world, "d", 8), 16U);
    EXPECT_TRUE(world->manager().status().offload.at(0).is_filter_bypassed);
    EXPECT_EQ(world->manager().status().incident_count, 1U);
  }
  may_return->release();
  has_returned->acquire();
  has_returned->acquire();
}

}  // namespace
}  // namespace cairn
