// The scheduler's side when tiers are missing or reset, when ranks leave and come back, and at shutdown.
#include <gmock/gmock.h>

#include <future>

#include "cairn/connector/operation_testing.h"
#include "cairn/connector/scheduler_testing.h"
#include "cairn/leader/leader.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

// A rank has a part of each block, so it needs the number of blocks: the size in bytes is that of all ranks.
TEST(SchedulerConnectorTest, RanksGetTheNumberOfBlocksOfEachTier) {
  const TestFolder folder;
  SchedulerConnector::Options options = small_options(64, 0);
  options.manager.host.size = 1 << 20;
  options.manager.host.max_size = 2 << 20;
  options.manager.disk.size = 8 << 20;
  options.manager.disk.path = folder.in("blocks");
  const std::unique_ptr<SchedulerConnector> connector = *SchedulerConnector::make(options);
  std::promise<std::string> reported;
  const auto port = connector->local_leader().join({}, [&](std::uint32_t, const RankMessage& message) {
    if (const auto* welcome = std::get_if<RankWelcome>(&message)) {
      reported.set_value(welcome->config);
    }
  });
  ASSERT_TRUE(port.has_value());
  const Result<ManagerConfig> config = ManagerConfig::from_toml(reported.get_future().get(), "welcome");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_GT(config->host.blocks, 0U);
  EXPECT_EQ(config->host.blocks, connector->manager().host()->capacity());
  EXPECT_EQ(config->disk.blocks, connector->manager().disk()->capacity());
  EXPECT_EQ(config->device.blocks, 64U);
}

TEST(SchedulerConnectorTest, ARankThatCannotReserveSpaceForItsFileIsAnIncident) {
  const std::unique_ptr<SchedulerConnector> connector = *SchedulerConnector::make(small_options());
  std::promise<std::uint32_t> welcomed;
  const auto port = connector->local_leader().join({}, [&](std::uint32_t generation, const RankMessage& message) {
    if (std::holds_alternative<RankWelcome>(message)) {
      welcomed.set_value(generation);
    }
  });
  ASSERT_TRUE(port.has_value());
  (*port)->send(welcomed.get_future().get(), RankReady{.block_bytes = 64, .is_reserved = false});
  ASSERT_TRUE(connector->wait_for_ranks(kConnectorPatience));
  EXPECT_FALSE(connector->rank_status()[0].is_reserved);
  for (const TimePoint end = steady_clock().now() + kConnectorPatience; steady_clock().now() < end;) {
    (void)connector->take_outcomes();
    if (connector->manager().status().incident_count > 0) {
      break;
    }
    std::this_thread::yield();
  }
  const ManagerStatus status = connector->manager().status();
  ASSERT_THAT(status.incidents, SizeIs(1));
  EXPECT_EQ(status.incidents[0].kind, Incident::Kind::kNotReserved);
  EXPECT_THAT(status.incidents[0].text, HasSubstr("the disk file of rank 0: no space reserved"));
}

// KV of one data parallel rank is good on every other one; what they cannot share is a file or an address.
TEST(SchedulerConnectorTest, DataParallelRanksMakeTheSameKeysInFilesAndAtAddressesOfTheirOwn) {
  const TestFolder folder;
  const auto options_of = [&](std::uint32_t dp_rank, const std::string& file, const std::string& socket) {
    SchedulerConnector::Options options = small_options(64, 16);
    options.manager.dp_rank = dp_rank;
    options.manager.model.secret = std::string(64, '7');
    options.manager.disk.blocks = 16;
    options.manager.disk.path = folder.in(file);
    options.ranks.address = *RankAddress::parse("unix:" + folder.in(socket));
    return options;
  };
  const auto first = *SchedulerConnector::make(options_of(0, "blocks", "socket"));
  const auto same_file = SchedulerConnector::make(options_of(1, "blocks", "socket1"));
  ASSERT_FALSE(same_file);
  EXPECT_THAT(same_file.error().message, HasSubstr("neither do the data parallel ranks of an engine"));
  const auto same_address = SchedulerConnector::make(options_of(1, "blocks1", "socket"));
  ASSERT_FALSE(same_address);
  EXPECT_THAT(same_address.error().message, HasSubstr("each data parallel rank of one, an address of its own"));
  const auto second = SchedulerConnector::make(options_of(1, "blocks1", "socket1"));
  ASSERT_TRUE(second) << second.error().message;
  const auto keys_of = [](const SchedulerConnector& connector) {
    const auto sequence = *TokenBlockSequence::create(tokens(kPrompt), kBlockSize, connector.manager().hasher());
    return std::vector<BlockKey>(sequence.keys().begin(), sequence.keys().end());
  };
  EXPECT_EQ(keys_of(*first), keys_of(**second));
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
  options.ranks.on_change = [&](const RankChange& change) {
    const std::lock_guard lock(mutex);
    changes.push_back(change);
  };
  World world(options);
  world.save_prompt("a", kPrompt);
  const RequestHandle b = world.add("b", kPrompt);
  EXPECT_EQ(matched(world, b), 16);
  world.ranks[1]->leave();
  world.ranks[1]->join(world->local_leader());
  ASSERT_TRUE(world->wait_for_ranks(kConnectorPatience).has_value());
  world.take_until([&] { return matched(world, b) == 0; });
  const std::lock_guard lock(mutex);
  EXPECT_GE(changes.size(), 4) << "the caller's own on_change is called as well";
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

// A rank is connected before the leader counts it as ready. It gets the outcomes from the time in between when it is
// ready, whether its engine has bound the operations by then or not.
TEST(SchedulerConnectorTest, ARankHearsMissedOutcomesWhenItBecomesReady) {
  WorkerOperations worker(steady_clock());
  World world(small_options(64, 64, 2));
  world.save_prompt("a", kPrompt);
  world.ranks[1]->leave();
  world.ranks[1]->hold_back();
  world.ranks[1]->listen(worker);
  world.ranks[1]->join(world->local_leader());
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
  EXPECT_EQ(first.leader, world.ranks[0]->leader());
  worker.follow(first.leader);
  worker.bind(first, 2);
  world.take_until([&] { return world.ranks[0]->has_heard(load) && world.ranks[0]->has_heard(late_load); });
  EXPECT_TRUE(is_pending(worker, load));
  world.ranks[1]->ready();
  world.take_until([&] { return !is_pending(worker, load); });
  worker.bind(second, 2);
  EXPECT_FALSE(is_pending(worker, late_load));
  const WorkerOutcomes report = worker.take();
  EXPECT_THAT(report.loaded, ElementsAre(WorkerOutcomes::Loaded{"b", false}, WorkerOutcomes::Loaded{"c", false}));
  EXPECT_THAT(report.failed_blocks, SizeIs(8));
  // It gets later outcomes as all ranks do.
  const auto blocks = device_blocks(5, 40);
  const RequestHandle d = world.add("d", kPrompt, 500);
  world.step({{.request = d, .new_blocks = blocks}});
  IterationMetadata third = world.step({{.request = d, .computed_tokens = 18}});
  const OperationId save = third.saves.at(0)->id;
  worker.bind(third, 2);
  world.take_until([&] { return !is_pending(worker, save); });
  EXPECT_TRUE(world.ranks[1]->has_heard(save));
}

TEST(SchedulerConnectorTest, EndsWithLoadsAndSavesInFlight) {
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
