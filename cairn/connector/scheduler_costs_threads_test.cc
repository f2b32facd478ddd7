// What the cost model makes of loads that real ranks carry out: with default settings, in virtual time, and with an engine whose
// steps the loads have to wait for.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/worker_testing.h"
#include "cairn/leader/leader.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/step_event_testing.h"

namespace cairn {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::EngineShape;
using testing::EngineTensors;
using testing::TestStep;

constexpr std::chrono::seconds kPatience{20};  // much longer than any test takes
constexpr std::uint32_t kPromptBlocks = 16;
constexpr EngineShape kShape = {.layers = 2, .blocks = 64, .page = 16, .heads = 2, .size = 8};
constexpr Duration kStep = milliseconds(30);
constexpr Duration kPrefill = milliseconds(10);  // of a prompt

// Each block takes this time by the clock.
class TimedExecutor final : public TransferExecutor {
 public:
  TimedExecutor(ManualClock& clock, Duration block, std::unique_ptr<TransferExecutor> inside)
      : clock_(clock), block_(block), inside_(std::move(inside)) {}
  Result<TransferId> submit(Transfer&& transfer) override {
    clock_.advance(block_ * transfer.blocks.size());
    return inside_->submit(std::move(transfer));
  }
  void cancel(TransferId transfer) override { inside_->cancel(transfer); }
  void check_deadlines() override { inside_->check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override { return inside_->can_move(plan); }
  [[nodiscard]] ExecutorLoad load() const override { return inside_->load(); }
  [[nodiscard]] std::string describe() const override { return inside_->describe(); }

 private:
  ManualClock& clock_;
  const Duration block_;
  std::unique_ptr<TransferExecutor> inside_;
};

struct WorldOptions {
  std::uint32_t host_blocks = 64;
  std::uint32_t disk_blocks = 0;
  Duration host_block = microseconds(10);
  Duration disk_block = microseconds(10);
};

// A scheduler and one worker. The engine measures its iterations itself.
class CostWorld {
 public:
  explicit CostWorld(const WorldOptions& options) {
    SchedulerConnector::Options made;
    made.manager.block_size = kShape.page;
    made.manager.model = {.name = "small",
                          .layers = kShape.layers,
                          .heads = kShape.heads,
                          .head_size = kShape.size,
                          .element_type = "f16"};
    made.manager.device.blocks = kShape.blocks;
    made.manager.device.memory = DeviceMemory::kSystem;
    made.manager.host.blocks = options.host_blocks;
    made.manager.disk.blocks = options.disk_blocks;
    made.manager.disk.path = options.disk_blocks > 0 ? folder_.in("blocks") : "";
    made.parts.clock = &clock_;
    made.ranks.clock = &clock_;
    made.ranks.silence = std::chrono::hours(1);
    connector_ = *SchedulerConnector::make(std::move(made));
    WorkerConnector::Options worker{.leader = &connector_->local_leader(), .clock = &clock_};
    worker.around = [this, options](ExecutorKind kind, std::unique_ptr<TransferExecutor> inside) {
      const Duration block = kind == ExecutorKind::kFile ? options.disk_block : options.host_block;
      return std::make_unique<TimedExecutor>(clock_, block, std::move(inside));
    };
    worker_ = *WorkerConnector::make({testing::engine_group(tensors_, testing::TensorKind::kKvFirst, kShape)},
                                     testing::layer_names(kShape.layers), std::move(worker));
    EXPECT_TRUE(connector_->wait_for_ranks(kPatience).has_value());
  }
  ~CostWorld() { worker_.reset(); }
  CostWorld(const CostWorld&) = delete;
  CostWorld& operator=(const CostWorld&) = delete;

  // Runs the prompt of this number from its first to its last token. Returns how many tokens of it were loaded.
  std::size_t run(std::uint64_t prompt) {
    const std::vector<Token> tokens = tokens_of(prompt);
    const RequestHandle request = *connector_->add(++last_id_, {.tokens = tokens});
    SchedulerConnector::Match match = *connector_->match(request, 0);
    for (; match.when == SchedulerConnector::Match::When::kAskAgain; match = *connector_->match(request, 0)) {
      step({});
    }
    std::vector<BlockId> blocks(kPromptBlocks + 1);
    for (BlockId& block : blocks) {
      block = BlockId{next_block_++ % kShape.blocks};
    }
    EXPECT_TRUE(connector_->allocated(request, blocks, 0, match.tokens).has_value());
    std::size_t loaded = 0;
    if (match.tokens > 0) {
      loaded = load();
      EXPECT_EQ(loaded, match.tokens);
    }
    const std::array scheduled = {SchedulerConnector::Scheduled{
        .request = request, .computed_tokens = loaded, .scheduled_tokens = tokens.size() - loaded}};
    step(scheduled);
    last_duration_ = kPrefill * (tokens.size() - loaded) / tokens.size();
    if (*connector_->finish(request, tokens.size())) {
      await([&] { return std::exchange(released_, 0) > 0; });
    }
    return loaded;
  }
  // From now on what was saved before is on disk alone.
  void drop_from_host(std::span<const std::uint64_t> prompts) {
    const KvBlockManager& manager = connector_->manager();
    for (const std::uint64_t prompt : prompts) {
      const auto sequence = *TokenBlockSequence::create(tokens_of(prompt), kShape.page, manager.hasher());
      await([&] { return manager.disk()->count_prefix(sequence.keys()) == kPromptBlocks; });
    }
    EXPECT_TRUE(manager.reset(CacheLevel::kG2).has_value());
  }
  [[nodiscard]] LinkStatus link(CacheLevel from, CacheLevel to) const {
    for (const LinkStatus& link : connector_->manager().status().links) {
      if (link.from == from && link.to == to) {
        return link;
      }
    }
    return {};
  }
  [[nodiscard]] TokenCounts counts() const { return connector_->counts().total; }

 private:
  static std::vector<Token> tokens_of(std::uint64_t prompt) {
    std::vector<Token> tokens(kPromptBlocks * kShape.page + 8);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<Token>(1000 * prompt + i);
    }
    return tokens;
  }
  // The load may begin only when the engine's step before it is over.
  std::size_t load() {
    const auto busy = std::make_shared<TestStep>();
    step({}, busy);
    await([&] { return link(CacheLevel::kG2, CacheLevel::kG1).totals.blocks_in_flight > 0; });
    clock_.advance(kStep);
    busy->end();
    await([&] { return loaded_.has_value(); });
    return *std::exchange(loaded_, {});
  }
  void step(std::span<const SchedulerConnector::Scheduled> scheduled, const StepEventPtr& before = {}) {
    std::vector<std::byte> metadata;
    SchedulerConnector::Iteration iteration{.number = ++iteration_, .scheduled = scheduled};
    iteration.duration = std::exchange(last_duration_, {});
    EXPECT_TRUE(connector_->build(iteration, metadata).has_value());
    EXPECT_TRUE(connector_->refused().empty());
    EXPECT_TRUE(worker_->bind(metadata).has_value());
    EXPECT_TRUE(worker_->start_load(before).has_value());
    EXPECT_TRUE(worker_->save_step().has_value());
    (void)worker_->take_outcomes();
  }
  // Steps with nothing to run.
  void await(const std::function<bool()>& condition) {
    const TimePoint end = steady_clock().now() + kPatience;
    while (!condition()) {
      ASSERT_LT(steady_clock().now(), end) << "the condition does not become true";
      step({});
      const SchedulerConnector::Outcomes outcomes = connector_->take_outcomes();
      released_ += outcomes.released.size();
      for (const auto& each : outcomes.loaded) {
        loaded_ = each.tokens;
      }
      std::this_thread::yield();
    }
  }

  TestFolder folder_;
  ManualClock clock_;
  EngineTensors tensors_;
  std::unique_ptr<SchedulerConnector> connector_;
  std::unique_ptr<WorkerConnector> worker_;
  std::uint64_t last_id_ = 0;
  std::uint64_t iteration_ = 0;
  std::uint32_t next_block_ = 0;
  std::optional<Duration> last_duration_;
  std::optional<std::size_t> loaded_;
  std::size_t released_ = 0;
};

// As long as no load is measured, the prefill is learned from what is computed.
void learn_prefill(CostWorld& world) {
  for (std::uint64_t prompt = 100; prompt < 106; ++prompt) {
    EXPECT_EQ(world.run(prompt), 0U);
  }
}

TEST(SchedulerCostsTest, AWaitForTheEnginesStepIsNotTheLinks) {
  CostWorld world({});
  learn_prefill(world);
  world.run(1);
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(world.run(1), kPromptBlocks * kShape.page) << "round " << round;
  }
  const std::uint64_t block_bytes = 2ULL * kShape.layers * kShape.page * kShape.heads * kShape.size * 2;
  EXPECT_NEAR(world.link(CacheLevel::kG2, CacheLevel::kG1).bytes_per_second, static_cast<double>(block_bytes) / 10e-6,
              0.1 * static_cast<double>(block_bytes) / 10e-6);
  EXPECT_EQ(world.counts().too_slow, 0U);
}

TEST(SchedulerCostsTest, ASlowDiskIsNotReadWhileHostMemoryIs) {
  CostWorld world({.disk_blocks = 256, .disk_block = milliseconds(4)});
  learn_prefill(world);
  const std::array<std::uint64_t, 2> on_disk = {1, 2};
  for (const std::uint64_t prompt : on_disk) {
    world.run(prompt);
  }
  world.drop_from_host(on_disk);
  world.run(3);
  EXPECT_GT(world.run(1), 0U) << "measures the disk";
  EXPECT_EQ(world.run(2), 0U) << "16 blocks take 64 ms from the disk, and 10 ms to compute";
  EXPECT_GT(world.counts().too_slow, 0U);
  EXPECT_EQ(world.run(3), kPromptBlocks * kShape.page);
  EXPECT_EQ(world.run(3), kPromptBlocks * kShape.page);
}

}  // namespace
}  // namespace cairn
