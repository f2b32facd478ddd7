// The scheduler's side where tiers are missing or reset, ranks go and come back, and at its end.
#include <gmock/gmock.h>

#include <future>

#include "cairn/connector/scheduler_testing.h"
#include "cairn/leader/leader.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kPrompt = 18;  // four blocks of four tokens and two

std::size_t matched(World& world, RequestHandle request) {
  const auto match = world->match(request, 0);
  EXPECT_TRUE(match.has_value());
  return match->tokens;
}

TEST(SchedulerConnectorTest, WithoutTiersNothingIsSavedAndNothingHeld) {
  World world(small_options(64, 0));
  const RequestHandle a = world.add("a", kPrompt);
  EXPECT_EQ(matched(world, a), 0);
  const auto blocks = device_blocks(5);
  world.step({{.request = a, .new_blocks = blocks}});
  EXPECT_THAT(world.step({{.request = a, .computed_tokens = 18}}).saves, IsEmpty());
  EXPECT_FALSE(*world->finish(a, 18));
  EXPECT_FALSE(world->has_work());
}

// A rank has a part of each block: bytes of the whole would be too many for it, and no number of blocks no memory at all.
TEST(SchedulerConnectorTest, RanksAreToldHowManyBlocksTheTiersHave) {
  const TestFolder folder;
  SchedulerConnector::Options options = small_options(64, 0);
  options.manager.host.size = 1 << 20;
  options.manager.host.max_size = 2 << 20;
  options.manager.disk.size = 1 << 20;
  options.manager.disk.path = folder.in("blocks");
  const std::unique_ptr<SchedulerConnector> connector = *SchedulerConnector::make(options);
  std::promise<std::string> told;
  const auto port = connector->ranks().join(0, [&](std::uint32_t, const RankMessage& message) {
    if (const auto* welcome = std::get_if<RankWelcome>(&message)) {
      told.set_value(welcome->config);
    }
  });
  ASSERT_TRUE(port.has_value());
  const Result<ManagerConfig> config = ManagerConfig::from_toml(told.get_future().get(), "welcome");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_GT(config->host.blocks, 0U);
  EXPECT_EQ(config->host.blocks, connector->manager().host()->capacity());
  EXPECT_EQ(config->disk.blocks, connector->manager().disk()->capacity());
  EXPECT_EQ(config->device.blocks, 64U);
}

TEST(SchedulerConnectorTest, ResetForgetsWhatTiersHave) {
  World world(small_options());
  world.save_prompt("a", kPrompt);
  ASSERT_TRUE(world->reset());
  EXPECT_EQ(matched(world, world.add("b", kPrompt)), 0);
}

TEST(SchedulerConnectorTest, ARankThatComesBackFindsTheHostTierEmpty) {
  std::vector<RankChange> changes;
  std::mutex mutex;
  SchedulerConnector::Options options = small_options(64, 64, 2);
  options.ranks.told = [&](const RankChange& change) {
    const std::lock_guard lock(mutex);
    changes.push_back(change);
  };
  World world(options);
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  world.ranks[1]->leave();
  world.ranks[1]->join(world->ranks(), 1);
  ASSERT_TRUE(world->wait_for_ranks(kConnectorPatience).has_value());
  world.take_until([&] { return matched(world, b) == 0; });
  const std::lock_guard lock(mutex);
  EXPECT_GE(changes.size(), 4) << "whoever asked for it is told as well";
}

TEST(SchedulerConnectorTest, ARankThatIsGoneFailsLoadsAndSavesAndNothingElse) {
  World world(small_options(64, 64, 2));
  world.save_prompt("a", kPrompt);
  world.ranks[1]->leave();
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  const auto blocks = device_blocks(5, 20);
  CAIRN_SLOT_OK(world->allocated(b, blocks, 0, 16));
  world.step();
  world.take_until([&] { return !world.loaded.empty(); });
  EXPECT_EQ(world.loaded[0].missing, 16);
  world.step({{.request = b, .computed_tokens = 0}});
  EXPECT_TRUE(*world->finish(b, 18));
  world.drain();
  EXPECT_THAT(world.released, ElementsAre(RequestId("a"), RequestId("b")));
}

// Its connection is there for the rank before the leader counts on it: what is told in between it hears when it is ready,
// whether its engine has bound it by then or not.
TEST(SchedulerConnectorTest, ARankThatIsNotReadyYetHearsWhatIsOverWhenItIs) {
  WorkerOperations worker(steady_clock());
  World world(small_options(64, 64, 2));
  world.save_prompt("a", kPrompt);
  world.ranks[1]->leave();
  world.ranks[1]->hold_back();
  world.ranks[1]->listen(worker);
  world.ranks[1]->join(world->ranks(), 1);
  world.take_until([&] { return world.ranks[1]->is_welcomed(); });
  const RequestHandle b = world.add("b", kPrompt);
  const RequestHandle c = world.add("c", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  EXPECT_EQ(matched(world, c), 16);
  CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
  IterationMetadata first = world.step();
  CAIRN_SLOT_OK(world->allocated(c, device_blocks(5, 30), 0, 16));
  IterationMetadata second = world.step();
  const OperationId load = first.loads.at(0)->id;
  const OperationId late_load = second.loads.at(0)->id;
  EXPECT_EQ(first.leader, world->ranks().id());
  worker.follow(first.leader);
  worker.bind(first, 2);
  world.take_until([&] { return world.ranks[0]->has_heard(load) && world.ranks[0]->has_heard(late_load); });
  EXPECT_TRUE(worker.is_pending(load));
  world.ranks[1]->ready();
  world.take_until([&] { return !worker.is_pending(load); });
  worker.bind(second, 2);
  EXPECT_FALSE(worker.is_pending(late_load));
  const WorkerOutcomes report = worker.take();
  EXPECT_THAT(report.loaded, ElementsAre(WorkerOutcomes::Loaded{"b", false}, WorkerOutcomes::Loaded{"c", false}));
  EXPECT_THAT(report.failed_blocks, SizeIs(8));
  // What is given out from now on it hears as all do.
  const auto blocks = device_blocks(5, 40);
  const RequestHandle d = world.add("d", kPrompt, 500);
  world.step({{.request = d, .new_blocks = blocks}});
  IterationMetadata third = world.step({{.request = d, .computed_tokens = 18}});
  const OperationId save = third.saves.at(0)->id;
  worker.bind(third, 2);
  world.take_until([&] { return !worker.is_pending(save); });
  EXPECT_TRUE(world.ranks[1]->has_heard(save));
}

TEST(SchedulerConnectorTest, EndsWithLoadsAndSavesUnderWay) {
  for (const bool is_stopped : {true, false}) {
    SchedulerConnector::Options options = small_options(64, 64, 2);
    options.manager.shutdown = std::chrono::milliseconds(50);
    World world(options);
    world.save_prompt("a", kPrompt);
    world.ranks[1]->stop(is_stopped);
    const RequestHandle b = world.add("b", kPrompt);
    EXPECT_EQ(matched(world, b), 16);
    CAIRN_SLOT_OK(world->allocated(b, device_blocks(5, 20), 0, 16));
    const RequestHandle c = world.add("c", kPrompt, 500);
    const auto blocks = device_blocks(5);
    world.step({{.request = c, .new_blocks = blocks}});
    EXPECT_THAT(world.step({{.request = c, .computed_tokens = 18}}).saves, SizeIs(1));
    world.connector.reset();
  }
}

}  // namespace
}  // namespace cairn
