#include "cairn/connector/worker_connector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/kv_groups.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/operation_testing.h"
#include "cairn/connector/worker_testing.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/leader/leader_testing.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/transfer/fault_executor.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using testing::engine_group;
using testing::EngineShape;
using testing::EngineTensors;
using ::testing::HasSubstr;
using testing::kAllTensorKinds;
using testing::kPatience;
using testing::layer_names;
using testing::load_operation;
using testing::rank_plan;
using testing::save_operation;
using testing::TensorKind;
using testing::TransferLog;

constexpr std::uint32_t kBlocks = 16;
constexpr EngineShape kShape = {.layers = 3, .blocks = kBlocks, .page = 4, .heads = 2, .size = 8};

ManagerConfig config_of(TensorKind kind, std::uint32_t ranks) {
  ManagerConfig config;
  config.block_size = kShape.page;
  const bool is_mla = kind == TensorKind::kMla;
  config.model = {.name = "worker",
                  .layers = kShape.layers,
                  .kv = is_mla ? 1U : 2U,
                  .heads = is_mla ? 1U : kShape.heads * ranks,
                  .head_size = is_mla ? kShape.heads * kShape.size : kShape.size,
                  .element_type = "f16"};
  config.device.blocks = kBlocks;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = kBlocks;
  return config;
}

// A step of a device that the test ends or fails.
class TestEvent final : public StepEvent {
 public:
  [[nodiscard]] StepState state() override { return now; }
  [[nodiscard]] StepState wait_until(TimePoint deadline) override {
    while (now == StepState::kPending && steady_clock().now() < deadline) {
      std::this_thread::yield();
    }
    return now;
  }
  std::atomic<StepState> now = StepState::kPending;
};

// One rank of an engine: its tensors, what they hold, and its connector.
struct Rank {
  EngineTensors memory;
  std::optional<LayoutGroups> device;  // the same tensors, to write and read patterns
  std::unique_ptr<WorkerConnector> connector;

  void write(std::uint32_t block, std::uint64_t seed) const {
    for (const BlockLayoutPtr& layout : device->layouts()) {
      write_pattern(*layout, block, seed);
    }
  }
  [[nodiscard]] bool holds(std::uint32_t block, std::uint64_t seed) const {
    return std::ranges::none_of(device->layouts(), [&](const BlockLayoutPtr& layout) {
      return find_stranger(*layout, block, seed).has_value();
    });
  }
};

class WorkerConnectorThreadsTest : public ::testing::Test {
 protected:
  ~WorkerConnectorThreadsTest() override { ranks_.clear(); }

  void lead(TensorKind kind, std::uint32_t ranks = 1, std::optional<RankAddress> address = {}) {
    leader_ = *Leader::make({.ranks = ranks, .address = std::move(address), .transfers = 64});
    executor_ = leader_->make_executor();
    leader_->open(config_of(kind, ranks));
    options_.ranks = ranks;
    leader_id_ = leader_->id();
  }
  // What the scheduler of that leader says.
  [[nodiscard]] std::vector<std::byte> encoded(IterationMetadata metadata) const {
    metadata.leader = leader_id_;
    std::vector<std::byte> bytes;
    metadata.encode(bytes);
    return bytes;
  }
  Result<Rank*> join(const std::function<std::vector<KvGroup>(EngineTensors&)>& make) {
    auto rank = std::make_unique<Rank>();
    std::vector<KvGroup> groups = make(rank->memory);
    rank->device = *make_kv_groups(groups, layer_names(kShape.layers));
    WorkerConnector::Options options = options_;
    options.rank = static_cast<std::uint32_t>(ranks_.size());
    options.leader = options.address ? nullptr : leader_.get();
    Result<std::unique_ptr<WorkerConnector>> connector =
        WorkerConnector::make(std::move(groups), layer_names(kShape.layers), std::move(options));
    if (!connector) {
      return Unexpected(connector.error());
    }
    rank->connector = *std::move(connector);
    ranks_.push_back(std::move(rank));
    return ranks_.back().get();
  }
  void join(TensorKind kind) {
    Result<Rank*> rank =
        join([kind](EngineTensors& memory) { return std::vector{engine_group(memory, kind, kShape)}; });
    ASSERT_TRUE(rank) << rank.error().to_string();
  }
  [[nodiscard]] Rank& rank(std::size_t i = 0) const { return *ranks_[i]; }
  [[nodiscard]] WorkerConnector& worker(std::size_t i = 0) const { return *ranks_[i]->connector; }

  // --- what a scheduler's side does with the leader ---
  void submit(const std::string& name, MemoryKind from, MemoryKind to, const std::vector<BlockPair>& pairs,
              StepMark not_before) {
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience));
    Transfer transfer = log_.transfer(name, rank_plan(from, to), 0, steady_clock().now() + kPatience);
    transfer.not_before = not_before;
    for (const BlockPair& pair : pairs) {
      transfer.blocks.push_back({.pair = pair, .tag = {.high = 1, .low = transfer.blocks.size()}});
    }
    ASSERT_TRUE(executor_->submit(std::move(transfer)).has_value());
  }
  void submit_save(std::uint64_t iteration, const std::vector<BlockPair>& pairs) {
    submit("save", MemoryKind::kDevice, MemoryKind::kPinned, pairs, StepMark::computed(iteration - 1));
  }
  void submit_load(std::uint64_t iteration, const std::vector<BlockPair>& pairs) {
    submit("load", MemoryKind::kPinned, MemoryKind::kDevice, pairs, StepMark::begun(iteration));
  }
  void tell(const OperationOutcomes& outcomes) {
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience));  // a rank that is not ready gets no outcomes
    leader_->broadcast({.bytes = outcomes.encode()});
  }
  // Blocks of the last copy that were loaded, from the first on.
  void tell_load(OperationId id) {
    log_.wait_settled("load");
    std::uint32_t arrived = 0;
    for (const BlockState state : log_.states("load")) {
      if (state != BlockState::kDone) {
        break;
      }
      ++arrived;
    }
    tell({.loads = {{id, arrived}}});
  }
  void tell_save(OperationId id) {
    log_.wait_settled("save");
    EXPECT_THAT(log_.states("save"), Each(saved_as_));
    tell({.saves = {id}});
  }

  // --- an engine's steps ---
  void step(const IterationMetadata& metadata, const StepEventPtr& computed = {}) {
    for (const auto& rank : ranks_) {
      ASSERT_TRUE(rank->connector->bind(encoded(metadata)));
      ASSERT_TRUE(rank->connector->start_load());
      ASSERT_TRUE(rank->connector->save_step(computed));
    }
  }
  // The next outcomes of a worker.
  static WorkerOutcomes next_report(WorkerConnector& worker) {
    const TimePoint deadline = steady_clock().now() + kPatience;
    WorkerOutcomes report;
    while (report == WorkerOutcomes() && steady_clock().now() < deadline) {
      report = worker.take_outcomes();
      std::this_thread::yield();
    }
    return report;
  }

  WorkerConnector::Options options_ = {.fence_limit = milliseconds(50), .layer_limit = kPatience};
  BlockState saved_as_ = BlockState::kDone;
  TransferLog log_;
  LeaderId leader_id_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<TransferExecutor> executor_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

const std::vector<BlockPair> kSaved = {{0, 5}, {1, 6}, {2, 7}};   // device, host
const std::vector<BlockPair> kLoaded = {{5, 3}, {6, 1}, {7, 4}};  // host, device
const OperationPtr kSave = save_operation({1, 1}, "save", {BlockId{0}, BlockId{1}, BlockId{2}});
const OperationPtr kLoad = load_operation({1, 2}, "load", {BlockId{3}, BlockId{1}, BlockId{4}});
const OperationPtr kLoadInStep = load_operation({1, 2}, "load", {BlockId{3}, BlockId{1}, BlockId{4}}, true);

class EveryTensorKindThreadsTest : public WorkerConnectorThreadsTest,
                                   public ::testing::WithParamInterface<TensorKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryTensorKindThreadsTest, ::testing::ValuesIn(kAllTensorKinds));

TEST_P(EveryTensorKindThreadsTest, WhatIsLoadedIsWhatWasSaved) {
  lead(GetParam());
  join(GetParam());
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    rank().write(block, 100 + block);
  }
  step({.iteration = 1});
  submit_save(2, kSaved);
  step({.iteration = 2, .saves = {kSave}});
  tell_save(kSave->id);
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.saved = {"save"}}));
  for (std::uint32_t block = 0; block < kBlocks; ++block) {
    rank().write(block, 200 + block);
  }
  submit_load(3, kLoaded);
  step({.iteration = 3, .loads = {kLoad}});
  tell_load(kLoad->id);
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.loaded = {{"load", true}}}));
  EXPECT_TRUE(rank().holds(3, 100));
  EXPECT_TRUE(rank().holds(1, 101));
  EXPECT_TRUE(rank().holds(4, 102));
  for (const std::uint32_t block : {0U, 2U, 5U, 6U, 15U}) {
    EXPECT_TRUE(rank().holds(block, 200 + block)) << block;
  }
}

TEST_P(EveryTensorKindThreadsTest, LayersComeInTheStep) {
  lead(GetParam());
  join(GetParam());
  for (const std::uint32_t block : {0U, 1U, 2U}) {
    rank().write(block, 100 + block);
  }
  step({.iteration = 1});
  submit_save(2, kSaved);
  step({.iteration = 2, .saves = {kSave}});
  tell_save(kSave->id);
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.saved = {"save"}}));
  rank().write(1, 999);
  ASSERT_TRUE(worker().bind(encoded({.iteration = 3, .loads = {kLoadInStep}})));
  submit_load(3, kLoaded);
  std::thread leader([this] { tell_load(kLoad->id); });
  ASSERT_TRUE(worker().start_load());
  for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
    const Status there = worker().wait_for_layer(layer);
    EXPECT_TRUE(there) << there.error().to_string();
  }
  EXPECT_TRUE(rank().holds(3, 100));
  EXPECT_TRUE(rank().holds(1, 101));
  EXPECT_TRUE(rank().holds(4, 102));
  ASSERT_TRUE(worker().save_step());
  EXPECT_EQ(worker().take_outcomes(), (WorkerOutcomes{.loaded = {{"load", true}}}))
      << "it waits for the leader's outcome";
  leader.join();
}

TEST_F(WorkerConnectorThreadsTest, GroupsOfOtherShapesMoveTogether) {
  lead(TensorKind::kKvFirst);
  const auto groups = [](EngineTensors& memory) {
    EngineShape outer = kShape;
    outer.layers = 2;
    EngineShape inner = kShape;
    inner.layers = 1;
    return std::vector{engine_group(memory, TensorKind::kKAndVApart, outer, "outer", 0),
                       engine_group(memory, TensorKind::kMla, inner, "inner", 2)};
  };
  ASSERT_TRUE(join(groups));
  EXPECT_EQ(worker().layer("layer.2"), 2U);
  EXPECT_EQ(worker().layer("layer.3"), std::nullopt);
  rank().write(0, 100);
  step({.iteration = 1});
  submit_save(2, {{0, 5}});
  step({.iteration = 2});
  EXPECT_THAT(log_.states("save"), Each(BlockState::kDone));
  submit_load(3, {{5, 9}});
  step({.iteration = 3});
  EXPECT_THAT(log_.states("load"), Each(BlockState::kDone));
  EXPECT_TRUE(rank().holds(9, 100));
}

TEST_F(WorkerConnectorThreadsTest, EveryRankSaysTheSame) {
  lead(TensorKind::kBlockFirst, 2);
  join(TensorKind::kBlockFirst);
  join(TensorKind::kHnd);  // each as its engine has it
  for (std::uint32_t i = 0; i < 2; ++i) {
    for (const std::uint32_t block : {0U, 1U, 2U}) {
      rank(i).write(block, 100 * (i + 1) + block);
    }
  }
  step({.iteration = 1});
  submit_save(2, kSaved);
  step({.iteration = 2, .saves = {kSave}});
  tell_save(kSave->id);
  submit_load(3, kLoaded);
  step({.iteration = 3, .loads = {kLoad}});
  log_.wait_settled("load");
  tell({.loads = {{kLoad->id, 2}}});
  for (std::uint32_t i = 0; i < 2; ++i) {
    WorkerOutcomes report;
    while (report.loaded.empty()) {
      const WorkerOutcomes next = next_report(worker(i));
      ASSERT_NE(next, WorkerOutcomes());
      report.loaded.insert(report.loaded.end(), next.loaded.begin(), next.loaded.end());
      report.failed_blocks.insert(report.failed_blocks.end(), next.failed_blocks.begin(), next.failed_blocks.end());
    }
    EXPECT_EQ(report, (WorkerOutcomes{.loaded = {{"load", false}}, .failed_blocks = {BlockId{4}}}));
    EXPECT_TRUE(rank(i).holds(3, 100 * (i + 1)));
  }
}

TEST_F(WorkerConnectorThreadsTest, ACopyThatFailsIsReportedByItsBlocks) {
  lead(TensorKind::kKvFirst);
  // The first block is loaded, the others fail.
  options_.around = [](ExecutorKind, std::unique_ptr<TransferExecutor> inside) -> std::unique_ptr<TransferExecutor> {
    return std::make_unique<FaultExecutor>(steady_clock(), std::move(inside),
                                           FaultOptions{.rules = {{.fault = Fault::kFail, .at = 5, .every = 1}}});
  };
  join(TensorKind::kKvFirst);
  step({.iteration = 1});
  submit_save(2, kSaved);
  step({.iteration = 2, .saves = {kSave}});
  tell_save(kSave->id);
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.saved = {"save"}}));
  submit_load(3, kLoaded);
  step({.iteration = 3, .loads = {kLoad}});
  tell_load(kLoad->id);
  EXPECT_EQ(next_report(worker()),
            (WorkerOutcomes{.loaded = {{"load", false}}, .failed_blocks = {BlockId{1}, BlockId{4}}}));
}

TEST_F(WorkerConnectorThreadsTest, AnInStepLoadThatNeverBeginsDoesNotBlock) {
  lead(TensorKind::kKvFirst);
  join(TensorKind::kKvFirst);
  ASSERT_TRUE(worker().bind(encoded({.iteration = 1, .loads = {kLoadInStep}})));
  ASSERT_TRUE(worker().start_load());
  std::thread leader([this] { tell({.loads = {{kLoad->id, 0}}}); });
  const Status there = worker().wait_for_layer(0);
  leader.join();
  ASSERT_FALSE(there);
  EXPECT_EQ(there.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(worker().take_outcomes(), (WorkerOutcomes{.loaded = {{"load", false}}, .failed_blocks = kLoad->block_ids}));
}

// The engine takes the blocks while their save waits for a step that does not end.
TEST_F(WorkerConnectorThreadsTest, ASaveOfBlocksThatAreTakenAwayFails) {
  lead(TensorKind::kKvFirst);
  join(TensorKind::kKvFirst);
  const auto endless = std::make_shared<TestEvent>();
  step({.iteration = 1}, endless);
  submit_save(2, kSaved);
  ASSERT_TRUE(worker().bind(encoded({.iteration = 2, .saves = {kSave}, .fences = {kSave}})));
  EXPECT_THAT(log_.states("save"), Each(BlockState::kFailed)) << "reported before the step begins";
  endless->now = StepState::kOver;
  saved_as_ = BlockState::kFailed;
  tell_save(kSave->id);
  ASSERT_TRUE(worker().start_load());
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.saved = {"save"}}));
}

TEST_F(WorkerConnectorThreadsTest, AFenceLetsASaveEnd) {
  options_.fence_limit = kPatience;
  lead(TensorKind::kKvFirst);
  join(TensorKind::kKvFirst);
  rank().write(0, 100);
  const auto computed = std::make_shared<TestEvent>();
  step({.iteration = 1}, computed);
  submit_save(2, kSaved);
  std::thread leader([&] {
    computed->now = StepState::kOver;
    tell_save(kSave->id);
  });
  ASSERT_TRUE(worker().bind(encoded({.iteration = 2, .saves = {kSave}, .fences = {kSave}})));
  leader.join();
}

// An event of the last step that has not ended holds its saves, whatever the next step does.
TEST_F(WorkerConnectorThreadsTest, ASaveWaitsForTheEventOfItsStep) {
  lead(TensorKind::kKvFirst);
  join(TensorKind::kKvFirst);
  const auto computed = std::make_shared<TestEvent>();
  step({.iteration = 1}, computed);
  submit_save(2, kSaved);
  ASSERT_TRUE(worker().bind(encoded({.iteration = 2, .saves = {kSave}})));
  ASSERT_TRUE(worker().start_load());
  // Meanwhile a copy that waits for nothing is carried out.
  submit("other", MemoryKind::kDevice, MemoryKind::kPinned, {{9, 9}}, StepMark());
  log_.wait_settled("other");
  EXPECT_FALSE(log_.is_done("save"));
  rank().write(0, 100);
  computed->now = StepState::kOver;
  EXPECT_THAT(log_.states("save"), Each(BlockState::kDone));
  submit_load(3, {{5, 3}});
  step({.iteration = 3});
  EXPECT_THAT(log_.states("load"), Each(BlockState::kDone));
  EXPECT_TRUE(rank().holds(3, 100)) << "the bytes at the end of the step";
}

TEST_F(WorkerConnectorThreadsTest, ASaveAfterAnEventThatFailedFails) {
  lead(TensorKind::kKvFirst);
  join(TensorKind::kKvFirst);
  const auto computed = std::make_shared<TestEvent>();
  step({.iteration = 1}, computed);
  submit_save(2, kSaved);
  computed->now = StepState::kFailed;
  EXPECT_THAT(log_.states("save"), Each(BlockState::kFailed));
  log_.wait_settled("save");
}

// The engine's scheduler dies and another one leads: the cache works again from its first iteration, whether the engine or
// the rank hears of it first.
class SchedulerRestartThreadsTest : public WorkerConnectorThreadsTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Order, SchedulerRestartThreadsTest, ::testing::Bool());

TEST_P(SchedulerRestartThreadsTest, TheCacheIsBackWithTheFirstIterationOfTheNewOne) {
  const TestFolder folder;
  const RankAddress address = *RankAddress::parse("unix:" + folder.in("leader.sock"));
  lead(TensorKind::kKvFirst, 1, address);
  options_.address = address;
  join(TensorKind::kKvFirst);
  step({.iteration = 500, .loads = {kLoad}, .saves = {kSave}});
  executor_.reset();
  leader_.reset();

  lead(TensorKind::kKvFirst, 1, address);
  const bool rank_is_first = GetParam();
  if (rank_is_first) {
    ASSERT_TRUE(leader_->wait_for_ranks(kPatience));
    // Sent to the rank before the engine has begun any step of this leader, which is 500 iterations below the last.
    submit_save(1, kSaved);
  }
  rank().write(0, 77);
  step({.iteration = 0});
  if (!rank_is_first) {
    submit_save(1, kSaved);
  }
  step({.iteration = 1, .saves = {kSave}});
  EXPECT_THAT(log_.states("save"), Each(BlockState::kDone));
  tell_save(kSave->id);
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.saved = {"save"}})) << "and no outcome of the leader before";
  submit_load(2, kLoaded);
  step({.iteration = 2, .loads = {kLoad}});
  tell_load(kLoad->id);
  EXPECT_EQ(next_report(worker()), (WorkerOutcomes{.loaded = {{"load", true}}}));
  EXPECT_TRUE(rank().holds(3, 77)) << "saved when iteration 0 had computed it, not before";
}

TEST_F(WorkerConnectorThreadsTest, WithoutALeaderWhatIsExpectedFails) {
  const TestFolder folder;
  const RankAddress address = *RankAddress::parse("unix:" + folder.in("leader.sock"));
  lead(TensorKind::kKvFirst, 1, address);
  options_.address = address;
  join(TensorKind::kKvFirst);
  step({.iteration = 1, .loads = {kLoad}, .saves = {kSave}});
  EXPECT_EQ(worker().take_outcomes(), WorkerOutcomes());
  executor_.reset();
  leader_.reset();
  WorkerOutcomes report = next_report(worker());
  EXPECT_EQ(report,
            (WorkerOutcomes{.loaded = {{"load", false}}, .saved = {"save"}, .failed_blocks = kLoad->block_ids}));
  EXPECT_FALSE(worker().state().is_connected);
  // Steps go on, and so do loads that are expected while they compute.
  const OperationPtr later = load_operation({1, 9}, "load", kLoad->block_ids, true);
  ASSERT_TRUE(worker().bind(encoded({.iteration = 2, .loads = {later}})));
  ASSERT_TRUE(worker().start_load());
  EXPECT_FALSE(worker().wait_for_layer(0));
  EXPECT_EQ(worker().take_outcomes(), (WorkerOutcomes{.loaded = {{"load", false}}, .failed_blocks = kLoad->block_ids}));
}

TEST_F(WorkerConnectorThreadsTest, WhatCannotBeMadeSaysWhy) {
  lead(TensorKind::kKvFirst);
  EngineTensors memory;
  const std::vector<KvGroup> groups = {engine_group(memory, TensorKind::kKvFirst, kShape)};
  const auto error_of = [&](const std::vector<std::string>& layers, WorkerConnector::Options options) {
    const auto made = WorkerConnector::make(groups, layers, std::move(options));
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_THAT(error_of(layer_names(3), {}),
              HasSubstr("either the address of the leader or, if it is in this process, the leader"));
  EXPECT_THAT(error_of(layer_names(4), {.leader = leader_.get()}),
              HasSubstr("layer 'layer.3' of the model is in no group"));
  EXPECT_THAT(error_of(layer_names(3), {.rank = 4, .leader = leader_.get()}), HasSubstr("rank 4"));
}

}  // namespace
}  // namespace cairn
