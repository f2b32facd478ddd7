// Saves that are given out with the iteration that computes their blocks: which blocks, when they count, and that nothing
// is saved of a step that failed. With default settings, except the number of blocks that makes it worthwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "cairn/connector/kv_groups.h"
#include "cairn/connector/scheduler_testing.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/connector/worker_testing.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/transfer/transfer_testing.h"

namespace cairn {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)
using ::testing::Each;

SchedulerConnector::Options in_step_options(std::uint32_t blocks = 2) {
  SchedulerConnector::Options options = small_options();
  options.in_step_save_blocks = blocks;
  return options;
}

// With a clock that the test moves; a rank that says nothing meanwhile is not given up.
SchedulerConnector::Options in_step_options_at(const Clock& clock) {
  SchedulerConnector::Options options = in_step_options();
  options.parts.clock = &clock;
  options.ranks.clock = &clock;
  options.ranks.silence = std::chrono::hours(1);
  return options;
}

class InStepSaveTest : public ::testing::Test {
 protected:
  // A prompt of 18 tokens in blocks 0 to 4 that is scheduled whole: four blocks are saved in the step.
  void begin() {
    request_ = world_.add("a", kPrompt);
    const IterationMetadata metadata =
        world_.begin({{.request = request_, .new_blocks = blocks_, .scheduled_tokens = kPrompt}});
    ASSERT_EQ(metadata.saves.size(), 1U);
    EXPECT_TRUE(metadata.saves[0]->in_step);
    EXPECT_EQ(metadata.saves[0]->block_ids, device_blocks(4, 0));
  }
  void compute() {
    world_.compute(keys_, blocks_);
    world_.end();
  }
  // Ends the request, and returns how many blocks another one with its prompt finds.
  std::size_t found_afterwards(std::optional<std::size_t> computed) {
    EXPECT_TRUE(world_->finish(request_, computed).has_value());
    world_.drain();
    const RequestHandle other = world_.add("other", kPrompt);
    return world_->match(other, 0)->tokens / kBlockSize;
  }
  void wait_for_saves(std::uint64_t saved, std::uint64_t lost) {
    world_.take_until([&] { return world_->saves().saved == saved && world_->saves().lost == lost; });
  }

  static constexpr std::size_t kPrompt = 18;
  World world_{in_step_options()};
  const std::vector<BlockKey> keys_ = world_.keys_of(kPrompt);
  const std::vector<BlockId> blocks_ = device_blocks(5, 0);
  RequestHandle request_{};
};

TEST_F(InStepSaveTest, CountsOnceTheNextIterationSaysThatTheBlocksAreComputed) {
  begin();
  compute();
  EXPECT_EQ(world_->saves().saved, 0U) << "the ranks have copied them, perhaps";
  const std::vector<Token> next = {1};
  const IterationMetadata metadata =
      world_.step({{.request = request_, .computed_tokens = kPrompt, .new_tokens = next, .scheduled_tokens = 1}});
  EXPECT_TRUE(metadata.saves.empty()) << "they are saved already";
  wait_for_saves(4, 0);
  EXPECT_EQ(found_afterwards(kPrompt + 1), 4U);
  EXPECT_EQ(world_->saves().withdrawn, 0U);
}

// What a user of a model with 128 k tokens of context expects of the default settings.
TEST(InStepSaveDefaultsTest, APromptOf131072TokensInOneStepIsSavedWhole) {
  constexpr std::size_t kTokens = 131'072;
  constexpr std::uint32_t kBlocks = 8'192;
  SchedulerConnector::Options options = small_options(kBlocks, kBlocks);
  options.manager.block_size = SchedulerConnector::Options().manager.block_size;
  World world(options);
  const RequestHandle request = world.add("long", kTokens);
  const std::vector<BlockId> blocks = device_blocks(kBlocks, 0);
  world.step({{.request = request, .new_blocks = blocks, .scheduled_tokens = kTokens}});
  EXPECT_TRUE(*world->finish(request, kTokens));
  world.drain();
  EXPECT_EQ(world->saves().saved, kBlocks);
  EXPECT_EQ(world->manager().host()->counts().registered, kBlocks);
  ASSERT_EQ(world.ended.size(), 1U);
  EXPECT_EQ(world.ended[0].counts.saved, kTokens);
  EXPECT_EQ(world.ended[0].counts.dropped(), 0U);
}

// An engine whose last iteration this was need not build another one.
TEST_F(InStepSaveTest, CountsWithTheEndOfTheRequest) {
  begin();
  compute();
  EXPECT_TRUE(*world_->finish(request_, kPrompt));
  wait_for_saves(4, 0);
  world_.take_until([&] { return !world_.released.empty(); });
}

TEST_F(InStepSaveTest, NothingOfAStepThatFailedIsSaved) {
  begin();
  world_.end();  // the blocks hold anything
  const IterationMetadata again =
      world_.begin({{.request = request_, .computed_tokens = 0, .scheduled_tokens = kPrompt}});
  EXPECT_TRUE(again.saves.empty()) << "the copies of the first step still hold its keys; it is saved afterwards";
  wait_for_saves(0, 4);
  compute();
  EXPECT_EQ(found_afterwards(kPrompt), 4U);
  EXPECT_EQ(world_->saves().withdrawn, 4U);
  const RequestHandle loads = *world_->find("other");
  const auto into = device_blocks(5, 20);
  ASSERT_TRUE(world_->allocated(loads, into, 0, 16));
  world_.step();
  world_.take_until([&] { return !world_.loaded.empty(); });
  EXPECT_TRUE(world_.hold(std::span(keys_).first(4), into)) << "what the second step computed";
}

TEST_F(InStepSaveTest, OnlyTheBlocksThatWereComputedAreSaved) {
  begin();
  world_.compute(std::span(keys_).first(2), blocks_);
  world_.end();
  EXPECT_EQ(found_afterwards(9), 2U);
  EXPECT_EQ(world_->saves().withdrawn, 2U);
}

TEST_F(InStepSaveTest, AnAbortedRequestIsNotSaved) {
  begin();
  compute();
  EXPECT_EQ(found_afterwards({}), 0U) << "nobody says that its step succeeded";
}

TEST_F(InStepSaveTest, APreemptedRequestIsNotSavedAndItsBlocksAreFenced) {
  begin();
  compute();
  const IterationMetadata metadata = world_.step({}, {request_});
  EXPECT_EQ(metadata.fences.size(), 1U) << "a rank may still read them";
  wait_for_saves(0, 4);
  EXPECT_EQ(found_afterwards({}), 0U);
}

TEST_F(InStepSaveTest, ARequestThatIsPassedOverIsSavedWhenItGoesOn) {
  begin();
  compute();
  world_.step();
  world_.step();
  EXPECT_EQ(world_->saves().saved, 0U);
  const std::vector<Token> next = {1};
  const IterationMetadata metadata =
      world_.step({{.request = request_, .computed_tokens = kPrompt, .new_tokens = next, .scheduled_tokens = 1}});
  EXPECT_TRUE(metadata.saves.empty());
  wait_for_saves(4, 0);
  EXPECT_EQ(found_afterwards(kPrompt + 1), 4U);
  EXPECT_EQ(world_->saves().withdrawn, 0U);
}

// Two batches by turns, as with pipeline parallelism.
TEST_F(InStepSaveTest, ARequestOfEverySecondIterationIsCopiedOnce) {
  const std::array requests = {world_.add("a", 32, 100), world_.add("b", 32, 200)};
  const std::array keys = {world_.keys_of(32, 100), world_.keys_of(32, 200)};
  const std::array blocks = {device_blocks(9, 0), device_blocks(9, 20)};
  std::size_t saves = 0;
  for (std::size_t turn = 0; turn < 6; ++turn) {
    const std::size_t which = turn % 2;
    SchedulerConnector::Scheduled scheduled{
        .request = requests[which], .computed_tokens = 12 * (turn / 2), .scheduled_tokens = turn < 4 ? 12U : 8U};
    scheduled.new_blocks = turn < 2 ? std::span<const BlockId>(blocks[which]) : std::span<const BlockId>();
    saves += world_.begin({scheduled}).saves.size();
    world_.compute(keys[which], blocks[which]);
    world_.end();
  }
  EXPECT_EQ(saves, 6U) << "three chunks of each";
  for (const RequestHandle request : requests) {
    EXPECT_TRUE(*world_->finish(request, 32));
  }
  world_.drain();
  EXPECT_EQ(world_->saves().asked, 16U);
  EXPECT_EQ(world_->saves().saved, 16U);
  EXPECT_EQ(world_->saves().withdrawn, 0U);
}

TEST(InStepSaveOptionTest, ARequestThatDoesNotRunAgainInTimeIsSavedAfterwards) {
  ManualClock clock;
  const SchedulerConnector::Options options = in_step_options_at(clock);
  World world(options);
  const RequestHandle request = world.add("a", 18);
  const auto blocks = device_blocks(5, 0);
  world.begin({{.request = request, .new_blocks = blocks, .scheduled_tokens = 18}});
  world.compute(world.keys_of(18), blocks);
  world.end();
  clock.advance(options.save_deadline);
  world.step();
  world.take_until([&] { return world->saves().lost == 4 && world->saves().withdrawn == 4; });
  const std::vector<Token> next = {1};
  const IterationMetadata metadata =
      world.step({{.request = request, .computed_tokens = 18, .new_tokens = next, .scheduled_tokens = 1}});
  ASSERT_EQ(metadata.saves.size(), 1U);
  EXPECT_FALSE(metadata.saves[0]->in_step);
  world.take_until([&] { return world->saves().saved == 4; });
}

// A prompt of 128 k tokens that is prefilled in one step takes 13 s: longer than a copy may take otherwise.
TEST(InStepSaveOptionTest, AStepMayTakeLongerThanACopy) {
  ManualClock clock;
  const SchedulerConnector::Options options = in_step_options_at(clock);
  World world(options);
  const RequestHandle request = world.add("a", 18);
  const auto blocks = device_blocks(5, 0);
  world.begin({{.request = request, .new_blocks = blocks, .scheduled_tokens = 18}});
  world.take_until([&] { return world->manager().status().offload.front().in_flight == 4; });
  clock.advance(options.manager.offload_to_host.deadline + std::chrono::seconds(3));
  world.compute(world.keys_of(18), blocks);
  world.end();
  ASSERT_TRUE(*world->finish(request, 18));
  world.drain();
  EXPECT_EQ(world->saves().saved, 4U);
}

// An account that makes no sense: what the blocks hold is unknown.
TEST_F(InStepSaveTest, ARefusedRequestIsNotSaved) {
  begin();
  compute();
  world_.step({{.request = request_, .computed_tokens = 1000}});
  ASSERT_EQ(world_->refused().size(), 1U);
  wait_for_saves(0, 4);
  EXPECT_EQ(found_afterwards({}), 0U);
}

TEST_F(InStepSaveTest, TheEndOfTheConnectorDoesNotWaitForTheEnginesWord) {
  begin();
  compute();
}

TEST(InStepSaveOptionTest, TakesAsManyBlocksAsItIsToldAndTheScheduledTokens) {
  for (const auto& [least, scheduled, in_step] :
       {std::tuple(4U, 18U, true), {5U, 18U, false}, {0U, 18U, false}, {2U, 0U, false}, {2U, 7U, false}}) {
    World world(in_step_options(least));
    const RequestHandle request = world.add("a", 18);
    const auto blocks = device_blocks(5, 0);
    const IterationMetadata metadata =
        world.step({{.request = request, .new_blocks = blocks, .scheduled_tokens = scheduled}});
    EXPECT_EQ(metadata.saves.size(), in_step ? 1U : 0U) << least << " of " << scheduled;
    const std::size_t computed = scheduled == 7 ? 7 : 16;
    const IterationMetadata next =
        world.step({{.request = request, .computed_tokens = computed, .scheduled_tokens = 2}});
    EXPECT_EQ(next.saves.size(), in_step ? 0U : 1U);
  }
  EXPECT_EQ(SchedulerConnector::Options().in_step_save_blocks, 8U) << "documented";
}

// In the step of its load a request may compute from KV that does not arrive.
TEST(InStepSaveOptionTest, ARequestThatIsLoadedInTheStepIsSavedAfterIt) {
  SchedulerConnector::Options options = in_step_options(1);
  options.load = LoadMode::kInStep;
  World world(options);
  world.save_prompt("first", 8, 0);
  const RequestHandle request = world.add("second", 26);
  ASSERT_EQ(world->match(request, 0)->tokens, 8U);
  const auto blocks = device_blocks(7, 20);
  ASSERT_TRUE(world->allocated(request, blocks, 0, 8));
  const IterationMetadata metadata = world.step({{.request = request, .computed_tokens = 8, .scheduled_tokens = 18}});
  EXPECT_EQ(metadata.loads.size(), 1U);
  EXPECT_TRUE(metadata.saves.empty());
  world.take_until([&] { return !world.loaded.empty(); });
  const std::vector<Token> next = {1};
  const IterationMetadata after =
      world.step({{.request = request, .computed_tokens = 26, .new_tokens = next, .scheduled_tokens = 1}});
  ASSERT_EQ(after.saves.size(), 1U);
  EXPECT_FALSE(after.saves[0]->in_step);
  EXPECT_EQ(after.saves[0]->block_ids.size(), 4U);
}

// --- with workers: the bytes of a step are in host memory before it ends ---

constexpr EngineShape kInStepShape = {.layers = 4, .blocks = 64, .page = kBlockSize, .heads = 2, .size = 8};

class InStepSaveEngine {
 public:
  explicit InStepSaveEngine(std::uint32_t ranks) {
    SchedulerConnector::Options options = small_options(kInStepShape.blocks, 64, ranks);
    options.manager.model = {.name = "small",
                             .layers = kInStepShape.layers,
                             .heads = kInStepShape.heads * ranks,
                             .head_size = kInStepShape.size,
                             .element_type = "f16"};
    scheduler = *SchedulerConnector::make(options);
    for (std::uint32_t i = 0; i < ranks; ++i) {
      auto rank = std::make_unique<Worker>();
      const std::vector<KvGroup> groups = {engine_group(rank->memory, TensorKind::kKvFirst, kInStepShape)};
      rank->device = *make_kv_groups(groups, layer_names(kInStepShape.layers));
      WorkerConnector::Options worker{.rank = i, .ranks = ranks, .leader = &scheduler->local_leader()};
      worker.around = [copied = rank->copied](ExecutorKind kind, std::unique_ptr<TransferExecutor> inside) {
        return kind == ExecutorKind::kHost ? std::make_unique<CountingExecutor>(copied, std::move(inside))
                                           : std::move(inside);
      };
      rank->connector = *WorkerConnector::make(groups, layer_names(kInStepShape.layers), worker);
      workers.push_back(std::move(rank));
    }
    EXPECT_TRUE(scheduler->wait_for_ranks(kConnectorPatience).has_value());
  }
  ~InStepSaveEngine() { workers.clear(); }
  InStepSaveEngine(const InStepSaveEngine&) = delete;
  InStepSaveEngine& operator=(const InStepSaveEngine&) = delete;

  struct Worker {
    EngineTensors memory;
    std::optional<LayoutGroups> device;
    std::shared_ptr<std::atomic<std::uint64_t>> copied = std::make_shared<std::atomic<std::uint64_t>>(0);
    std::unique_ptr<WorkerConnector> connector;
  };

  void begin(std::vector<SchedulerConnector::Scheduled> scheduled) {
    std::vector<std::byte> metadata;
    ASSERT_TRUE(scheduler->build({.number = ++iteration, .scheduled = scheduled}, metadata));
    for (const auto& worker : workers) {
      ASSERT_TRUE(worker->connector->bind(metadata));
      ASSERT_TRUE(worker->connector->start_load());
    }
  }
  void save_layer(std::uint32_t layer) {
    for (const auto& worker : workers) {
      ASSERT_TRUE(worker->connector->save_layer(layer));
    }
  }
  void take_outcomes() {
    for (const auto& worker : workers) {
      (void)worker->connector->take_outcomes();
    }
    (void)scheduler->take_outcomes();
  }
  void wait(const std::function<bool()>& condition) {
    const TimePoint end = steady_clock().now() + kConnectorPatience;
    while (!condition()) {
      ASSERT_LT(steady_clock().now(), end) << "it does not happen";
      std::this_thread::yield();
    }
  }

  std::unique_ptr<SchedulerConnector> scheduler;  // outlives the workers
  std::vector<std::unique_ptr<Worker>> workers;
  std::uint64_t iteration = 0;
};

TEST(InStepSaveEngineTest, MostBytesAreCopiedBeforeTheStepEnds) {
  InStepSaveEngine engine(2);
  const std::vector<Token> prompt = tokens(10 * kBlockSize + 1);
  const RequestHandle request = *engine.scheduler->add("a", {.tokens = prompt});
  const auto blocks = device_blocks(11, 3);
  engine.begin({{.request = request, .new_blocks = blocks, .scheduled_tokens = prompt.size()}});
  for (const auto& worker : engine.workers) {
    for (std::uint32_t i = 0; i < 10; ++i) {
      write_pattern(*worker->device->layouts().front(), 3 + i, 100 + i);
    }
  }
  for (std::uint32_t layer = 0; layer + 1 < kInStepShape.layers; ++layer) {
    engine.save_layer(layer);
    for (const auto& worker : engine.workers) {
      engine.wait([&] { return *worker->copied == 10 * (layer + 1); });
    }
  }
  EXPECT_EQ(engine.scheduler->saves().saved, 0U) << "three quarters of the bytes are copied, and nothing counts";
  engine.save_layer(kInStepShape.layers - 1);
  engine.take_outcomes();
  EXPECT_TRUE(*engine.scheduler->finish(request, prompt.size()));
  engine.wait([&] { return engine.scheduler->saves().saved == 10; });
  // What was saved is what is loaded, on every rank.
  const RequestHandle other = *engine.scheduler->add("b", {.tokens = prompt});
  ASSERT_EQ(engine.scheduler->match(other, 0)->tokens, 10 * kBlockSize);
  const auto into = device_blocks(11, 30);
  ASSERT_TRUE(engine.scheduler->allocated(other, into, 0, 10 * kBlockSize));
  engine.begin({});
  SchedulerConnector::Outcomes outcomes;
  engine.wait([&] {
    outcomes = engine.scheduler->take_outcomes();
    return !outcomes.loaded.empty();
  });
  EXPECT_EQ(outcomes.loaded[0].missing, 0U);
  for (const auto& worker : engine.workers) {
    for (std::uint32_t i = 0; i < 10; ++i) {
      EXPECT_FALSE(find_stranger(*worker->device->layouts().front(), 30 + i, 100 + i).has_value()) << "block " << i;
    }
  }
}

// One rank does not reach the end of the step. The engine claims the opposite.
TEST(InStepSaveEngineTest, AStepThatARankDidNotComputeIsNotSaved) {
  InStepSaveEngine engine(2);
  const std::vector<Token> prompt = tokens(10 * kBlockSize + 1);
  const RequestHandle request = *engine.scheduler->add("a", {.tokens = prompt});
  const auto blocks = device_blocks(11, 3);
  engine.begin({{.request = request, .new_blocks = blocks, .scheduled_tokens = prompt.size()}});
  for (std::uint32_t layer = 0; layer < kInStepShape.layers; ++layer) {
    ASSERT_TRUE(engine.workers[0]->connector->save_layer(layer));
    if (layer + 1 < kInStepShape.layers) {
      ASSERT_TRUE(engine.workers[1]->connector->save_layer(layer));
    }
  }
  engine.take_outcomes();
  EXPECT_TRUE(*engine.scheduler->finish(request, prompt.size()));
  engine.begin({});
  engine.wait([&] { return engine.scheduler->saves().lost == 10; });
  const RequestHandle other = *engine.scheduler->add("b", {.tokens = prompt});
  EXPECT_EQ(engine.scheduler->match(other, 0)->tokens, 0U);
}

}  // namespace
}  // namespace cairn
