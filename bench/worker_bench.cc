// The time that the worker side of the connector adds to an engine's step: with nothing to do, and with saves in
// flight.
//
// ConnectorStep runs a whole connector whose rank has joined a leader of the same process. SavedAfterPrefill runs both sides of
// the connector. The other benchmarks use a rank that only takes marks, so that they control what is in flight.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/operation_testing.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/connector/worker_operations.h"
#include "cairn/connector/worker_steps.h"
#include "cairn/leader/leader.h"
#include "cairn/manager/manager_config.h"
#include "cairn/rank/rank.h"

namespace cairn {
namespace {

constexpr std::uint32_t kLayers = 80;
constexpr std::uint32_t kBlocks = 1U << 16U;

class IdleRank final : public Rank {
 public:
  [[nodiscard]] bool follow(const LeaderId& /*leader*/, TimePoint /*deadline*/) override { return true; }
  void reached(StepMark mark, StepEventPtr after) override {
    last_ = mark;
    event_ = std::move(after);
  }
  void reached_layers(std::uint64_t /*iteration*/, std::uint32_t /*layers*/, StepEventPtr after) override {
    event_ = std::move(after);
  }
  void expect(std::span<const BlockId> /*blocks*/) override {}
  [[nodiscard]] Status wait_for_layer(std::uint32_t /*layer*/, TimePoint /*deadline*/) override { return {}; }
  [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t /*layer*/) const override { return {}; }
  void pass_over(std::span<const BlockId> /*blocks*/) override {}
  [[nodiscard]] bool fence(std::span<const BlockId> /*blocks*/, StepMark /*mark*/, TimePoint /*deadline*/) override {
    return true;
  }
  [[nodiscard]] Rank::State state() const override { return {.is_connected = true, .generation = 1}; }

 private:
  StepMark last_;
  StepEventPtr event_;
};

struct Worker {
  IdleRank rank;
  WorkerOperations operations{steady_clock()};
  WorkerSteps steps{rank,
                    operations,
                    {.layers = kLayers,
                     .blocks = kBlocks,
                     .clock = &steady_clock(),
                     .fence_limit = std::chrono::milliseconds(200),
                     .layer_limit = std::chrono::seconds(10),
                     .answer_limit = std::chrono::seconds(120)}};
};

// A whole step as in vLLM: a wait before each layer, and one call at the end.
template <typename Steps>
void run_step(Steps& steps, const std::vector<std::byte>& metadata) {
  benchmark::DoNotOptimize(steps.bind(metadata));
  benchmark::DoNotOptimize(steps.start_load({}));
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    benchmark::DoNotOptimize(steps.wait_for_layer(layer));
  }
  benchmark::DoNotOptimize(steps.save_step({}));
  benchmark::DoNotOptimize(steps.take_outcomes());
}

// An engine of 80 small layers in host memory, and the leader of its one rank.
class Engine {
 public:
  static constexpr std::uint32_t kDeviceBlocks = 64;

  Engine() {
    ManagerConfig config;
    config.block_size = 16;
    config.model = {.name = "bench", .layers = kLayers, .heads = 1, .head_size = 8, .element_type = "f16"};
    config.device.blocks = kDeviceBlocks;
    config.device.memory = DeviceMemory::kSystem;
    config.host.blocks = kDeviceBlocks;
    leader_ = *Leader::make({.ranks = 1});
    leader_->open(config);
    const std::vector<std::uint64_t> sizes = {2, kDeviceBlocks, 16, 1, 8};
    const std::uint64_t layer_bytes = 2 * kDeviceBlocks * 16 * 8 * sizeof(std::uint16_t);
    memory_.resize(layer_bytes * kLayers);
    KvGroup group = {.name = "all", .layers = {}, .tensors = {}, .element_bits = 16, .page_size = 16};
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      group.layers.push_back(std::to_string(layer));
      group.tensors.push_back(
          {.base = memory_.data() + layer * layer_bytes,
           .bytes = layer_bytes,
           .kind = MemoryKind::kSystem,
           .axes = {TensorAxis::kKv, TensorAxis::kBlock, TensorAxis::kToken, TensorAxis::kHead, TensorAxis::kElement},
           .sizes = sizes,
           .strides = {kDeviceBlocks * 16 * 8, 16 * 8, 8, 8, 1}});
    }
    std::vector<std::string> layers = group.layers;
    worker_ = *WorkerConnector::make({std::move(group)}, std::move(layers), {.leader = leader_.get()});
  }
  [[nodiscard]] WorkerConnector& worker() { return *worker_; }
  [[nodiscard]] LeaderId leader() const { return leader_->id(); }

 private:
  std::vector<std::byte> memory_;
  std::unique_ptr<Leader> leader_;
  std::unique_ptr<WorkerConnector> worker_;
};

// The limit is 2 us.
void ConnectorStep(benchmark::State& state) {
  Engine engine;
  IterationMetadata metadata{.leader = engine.leader()};
  std::vector<std::byte> bytes;
  for (auto _ : state) {
    ++metadata.iteration;
    metadata.encode(bytes);
    run_step(engine.worker(), bytes);
  }
}
BENCHMARK(ConnectorStep);

void StepWithNothingToDo(benchmark::State& state) {
  Worker worker;
  IterationMetadata metadata;
  std::vector<std::byte> bytes;
  for (auto _ : state) {
    ++metadata.iteration;
    metadata.encode(bytes);
    run_step(worker.steps, bytes);
  }
}
BENCHMARK(StepWithNothingToDo);

// The same with a save after each layer.
void StepThatSavesLayers(benchmark::State& state) {
  Worker worker;
  IterationMetadata metadata;
  std::vector<std::byte> bytes;
  for (auto _ : state) {
    ++metadata.iteration;
    metadata.encode(bytes);
    benchmark::DoNotOptimize(worker.steps.bind(bytes));
    benchmark::DoNotOptimize(worker.steps.start_load({}));
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      benchmark::DoNotOptimize(worker.steps.wait_for_layer(layer));
      benchmark::DoNotOptimize(worker.steps.save_layer(layer, {}));
    }
    benchmark::DoNotOptimize(worker.steps.take_outcomes());
  }
}
BENCHMARK(StepThatSavesLayers);

// A step without new work while saves of earlier steps are in flight.
void StepWithSavesInFlight(benchmark::State& state) {
  Worker worker;
  IterationMetadata metadata;
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(state.range(0)); ++i) {
    metadata.saves.push_back(testing::save_operation({i, 0}, RequestId(i), std::vector<BlockId>(16)));
  }
  metadata.encode(bytes);
  (void)worker.steps.bind(bytes);
  metadata.saves.clear();
  for (auto _ : state) {
    ++metadata.iteration;
    metadata.encode(bytes);
    run_step(worker.steps, bytes);
  }
}
BENCHMARK(StepWithSavesInFlight)->Arg(256);

// Each step binds one save, which is done before the next step.
void StepWithASave(benchmark::State& state) {
  Worker worker;
  IterationMetadata metadata;
  std::vector<std::byte> bytes;
  metadata.saves.push_back(
      testing::save_operation({1, 0}, RequestId(1U), std::vector<BlockId>(static_cast<std::size_t>(state.range(0)))));
  OperationOutcomes outcomes = {.saves = {{1, 0}}};
  for (auto _ : state) {
    ++metadata.iteration;
    ++metadata.saves.front()->id.number;
    ++outcomes.saves.front().number;
    metadata.encode(bytes);
    run_step(worker.steps, bytes);
    worker.operations.receive({}, outcomes.encode());
  }
}
BENCHMARK(StepWithASave)->Arg(1)->Arg(64);

// How long the blocks of a prefill are still read after its step: 64 blocks of 32 layers, each of which computes for 500 us.
// Argument: SchedulerConnector::Options::in_step_save_blocks; 0: the save begins after the step.
void SavedAfterPrefill(benchmark::State& state) {
  constexpr std::uint32_t kPrefillLayers = 32;
  constexpr std::uint32_t kPrefillBlocks = 64;
  constexpr std::uint32_t kTokens = 16;
  constexpr std::uint64_t kLayerBytes = std::uint64_t{2} * kPrefillBlocks * kTokens * 8 * 128 * sizeof(std::uint16_t);
  SchedulerConnector::Options options;
  options.manager.block_size = kTokens;
  options.manager.model = {
      .name = "bench", .layers = kPrefillLayers, .heads = 8, .head_size = 128, .element_type = "f16"};
  options.manager.device.blocks = kPrefillBlocks;
  options.manager.host.blocks = 4 * kPrefillBlocks;
  options.in_step_save_blocks = static_cast<std::uint32_t>(state.range(0));
  const std::unique_ptr<SchedulerConnector> scheduler = *SchedulerConnector::make(options);
  std::vector<std::byte> memory(kLayerBytes * kPrefillLayers);
  KvGroup group = {.name = "all", .layers = {}, .tensors = {}, .element_bits = 16, .page_size = kTokens};
  for (std::uint32_t layer = 0; layer < kPrefillLayers; ++layer) {
    group.layers.push_back(std::to_string(layer));
    group.tensors.push_back(
        {.base = memory.data() + layer * kLayerBytes,
         .bytes = kLayerBytes,
         .kind = MemoryKind::kSystem,
         .axes = {TensorAxis::kKv, TensorAxis::kBlock, TensorAxis::kToken, TensorAxis::kHead, TensorAxis::kElement},
         .sizes = {2, kPrefillBlocks, kTokens, 8, 128},
         .strides = {kPrefillBlocks * kTokens * 8 * 128, kTokens * 8 * 128, 8 * 128, 128, 1}});
  }
  const std::vector<std::string> layers = group.layers;
  const auto worker = *WorkerConnector::make({group}, layers, {.leader = &scheduler->local_leader()});
  (void)scheduler->wait_for_ranks(std::chrono::seconds(10));
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < kPrefillBlocks; ++i) {
    blocks.push_back(BlockId{i});
  }
  std::vector<Token> prompt(kPrefillBlocks * kTokens);
  std::vector<std::byte> metadata;
  std::uint64_t number = 0;
  const auto step = [&](std::vector<SchedulerConnector::Scheduled> scheduled, Duration of_layer) {
    (void)scheduler->build({.number = ++number, .scheduled = scheduled}, metadata);
    (void)worker->bind(metadata);
    (void)worker->start_load();
    for (std::uint32_t layer = 0; layer < kPrefillLayers; ++layer) {
      std::this_thread::sleep_for(of_layer);  // the GPU computes; the machine's cores are free
      (void)worker->save_layer(layer);
    }
    (void)worker->take_outcomes();
  };
  for (auto _ : state) {
    prompt[0] = static_cast<Token>(number);  // another prefix each time
    const RequestHandle request = *scheduler->add(number, {.tokens = prompt});
    step({{.request = request, .new_blocks = blocks, .scheduled_tokens = prompt.size()}},
         std::chrono::microseconds(500));
    const TimePoint ended = steady_clock().now();
    (void)scheduler->finish(request, prompt.size());
    while (scheduler->take_outcomes().released.empty()) {
      step({}, {});
    }
    state.SetIterationTime(std::chrono::duration<double>(steady_clock().now() - ended).count());
  }
}
BENCHMARK(SavedAfterPrefill)->Arg(0)->Arg(8)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
