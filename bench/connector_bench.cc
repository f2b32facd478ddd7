// The time that an engine's scheduler and workers spend in Cairn, beside its limit.
//
//   load     a request of 100,000 tokens, 6,250 blocks of 16, all in host memory: match, allocated and the metadata
//   step     256 requests that decode one token each, with nothing to load or save
//   filled   the same, but 16 of them fill a block, which has to be saved
//
// Prints medians with the limit beside them, and asserts nothing. Only the scheduler thread's time counts, not the work
// that it hands to other threads.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/connector/scheduler_connector.h"
#include "cairn/wire/local_leader.h"

namespace cairn {
namespace {

constexpr std::uint32_t kBlockSize = 16;
constexpr std::uint32_t kLongBlocks = 6250;
constexpr std::size_t kBatch = 256;

template <typename T>
T must(Result<T> result) {
  if (!result) {
    std::fputs(("connector_bench: " + result.error().to_string() + "\n").c_str(), stderr);
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) {
    return *std::move(result);
  }
}

// A rank that answers at once that everything is done.
class QuickRank {
 public:
  explicit QuickRank(LocalLeader& group) {
    auto port =
        group.join({}, [this](std::uint32_t generation, const RankMessage& message) { take(generation, message); });
    const std::lock_guard lock(mutex_);
    port_ = *std::move(port);
    for (const auto& [generation, message] : std::exchange(early_, {})) {
      answer(generation, message);
    }
  }

 private:
  void take(std::uint32_t generation, const RankMessage& message) {
    const std::lock_guard lock(mutex_);
    if (port_ == nullptr) {
      early_.emplace_back(generation, message);
    } else {
      answer(generation, message);
    }
  }
  void answer(std::uint32_t generation, const RankMessage& message) {
    if (std::holds_alternative<RankWelcome>(message)) {
      port_->send(generation, RankReady{.block_bytes = 64});
    } else if (const auto* ping = std::get_if<RankPing>(&message)) {
      port_->send(generation, RankPong{ping->number});
    } else if (const auto* copy = std::get_if<RankTransfer>(&message)) {
      RankTransferOutcome done{.id = copy->id};
      done.states.assign(copy->pairs.size(), BlockState::kDone);
      done.sums.assign(copy->pairs.size(), BlockSums{1, 1});
      port_->send(generation, done);
      port_->send(generation, RankSettled{copy->id});
    }
  }

  std::mutex mutex_;
  std::vector<std::pair<std::uint32_t, RankMessage>> early_;
  std::unique_ptr<LocalLeader::Port> port_;
};

class Engine {
 public:
  Engine() {
    SchedulerConnector::Options options;
    options.manager.block_size = kBlockSize;
    options.manager.model = {.name = "bench", .layers = 2, .heads = 8, .head_size = 64, .element_type = "f16"};
    options.manager.device.blocks = 3 * kLongBlocks;
    options.manager.host.blocks = 4 * kLongBlocks;
    options.manager.onboard.prefill_tokens_per_second = 100;  // so slow that everything is worth loading
    options.manager.onboard.host_to_device_bytes_per_second = 25'000'000'000;  // known, so that no load is a trial
    options.manager.offload_to_host.queue = 4 * kLongBlocks;
    Result<std::unique_ptr<SchedulerConnector>> made = SchedulerConnector::make(options);
    if (!made) {
      std::fputs(("connector_bench: " + made.error().to_string() + "\n").c_str(), stderr);
      std::exit(1);
    }
    connector_ = *std::move(made);
    rank_ = std::make_unique<QuickRank>(connector_->local_leader());
    (void)connector_->wait_for_ranks(std::chrono::seconds(10));
  }
  ~Engine() { connector_.reset(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  SchedulerConnector& operator*() { return *connector_; }
  SchedulerConnector* operator->() { return connector_.get(); }

  void build(std::span<const SchedulerConnector::Scheduled> scheduled) {
    if (!connector_->build({.number = ++iteration_, .scheduled = scheduled}, metadata_)) {
      std::exit(1);
    }
    for (const SchedulerConnector::Refused& refused : connector_->refused()) {
      std::fputs((refused.error.to_string() + "\n").c_str(), stderr);
      std::exit(1);
    }
  }
  void drain() {
    while (connector_->has_work()) {
      (void)connector_->take_outcomes();
      build({});
      std::this_thread::yield();
    }
  }
  [[nodiscard]] std::size_t metadata_bytes() const { return metadata_.size(); }

 private:
  std::unique_ptr<SchedulerConnector> connector_;
  std::unique_ptr<QuickRank> rank_;
  std::uint64_t iteration_ = 0;
  std::vector<std::byte> metadata_;
};

double thread_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Wall-clock time and processor time of this thread; they differ if other threads use the processors.
struct Sample {
  double wall = 0;
  double thread = 0;
};

Sample time(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  const double thread_began = thread_microseconds();
  work();
  const double thread = thread_microseconds() - thread_began;
  return {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count(), thread};
}

double quantile(const std::vector<Sample>& samples, double Sample::* which, double share) {
  std::vector<double> values;
  for (const Sample& sample : samples) {
    values.push_back(sample.*which);
  }
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// `bar` is the limit for the thread's time; 0: no limit.
void print(const char* name, const std::vector<Sample>& samples, double bar) {
  const double median = quantile(samples, &Sample::thread, 0.5);
  std::printf("%-34s thread %8.2f us, p99 %8.2f us   wall %8.2f us", name, median,
              quantile(samples, &Sample::thread, 0.99), quantile(samples, &Sample::wall, 0.5));
  if (bar > 0) {
    std::printf("   bar %6.1f us: %s", bar, median < bar ? "met" : "missed");
  }
  std::printf("\n");
}

void bench_load() {
  Engine engine;
  std::vector<Token> prompt(std::size_t{kLongBlocks} * kBlockSize + 1);
  std::iota(prompt.begin(), prompt.end(), Token{1});
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i <= kLongBlocks; ++i) {
    blocks.push_back(BlockId{i});
  }
  const RequestHandle first = must(engine->add("first", {.tokens = prompt}));
  const std::vector<SchedulerConnector::Scheduled> scheduled = {{.request = first, .new_blocks = blocks}};
  engine.build(scheduled);
  (void)must(engine->finish(first, prompt.size()));
  engine.drain();

  std::vector<Sample> match;
  std::vector<Sample> metadata;
  std::vector<Sample> both;
  for (int i = 0; i < 200; ++i) {
    const RequestHandle request = must(engine->add(static_cast<std::uint64_t>(i), {.tokens = prompt}));
    std::size_t tokens = 0;
    match.push_back(time([&] { tokens = must(engine->match(request, 0)).tokens; }));
    if (tokens != prompt.size() - 1) {
      std::fprintf(stderr, "connector_bench: match found only %zu tokens\n", tokens);
      std::exit(1);
    }
    metadata.push_back(time([&] {
      must(engine->allocated(request, blocks, 0, tokens));
      engine.build({});
    }));
    both.push_back({match.back().wall + metadata.back().wall, match.back().thread + metadata.back().thread});
    engine.drain();
    (void)must(engine->finish(request));
  }
  print("load: match", match, 0);
  print("load: allocated and metadata", metadata, 0);
  print("load: 100,000 tokens, both", both, 400);
}

// `fills`: how many of the requests fill a block in each measured step.
void bench_steps(const char* name, std::size_t fills, double bar) {
  Engine engine;
  std::vector<RequestHandle> requests;
  std::vector<std::size_t> computed;
  std::vector<Token> token = {7};
  std::vector<std::vector<BlockId>> blocks;
  std::uint32_t next_block = 0;
  std::vector<SchedulerConnector::Scheduled> scheduled;
  constexpr std::size_t kPrompt = 4 * kBlockSize;
  for (std::size_t i = 0; i < kBatch; ++i) {
    std::vector<Token> prompt(kPrompt + (fills > 0 ? i % kBlockSize : 0), Token{1});
    prompt[0] = static_cast<Token>(i);
    requests.push_back(must(engine->add("cmpl-7f9d6c1b5a3e4820-" + std::to_string(i), {.tokens = prompt})));
    computed.push_back(prompt.size());
    std::vector<BlockId>& own = blocks.emplace_back();
    for (int b = 0; b < 32; ++b) {
      own.push_back(BlockId{next_block++});
    }
    scheduled.push_back({.request = requests.back(), .new_blocks = own});
  }
  engine.build(scheduled);
  std::vector<Sample> samples;
  for (std::size_t step = 0; step < 300; ++step) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      scheduled[i] = {.request = requests[i], .computed_tokens = computed[i]++, .new_tokens = token};
    }
    const bool is_idle = (kPrompt + step) % kBlockSize != 0;
    const Sample took = time([&] {
      (void)engine->take_outcomes();
      engine.build(scheduled);
    });
    if (fills > 0 || is_idle) {
      samples.push_back(took);
    } else {
      engine.drain();
      scheduled.assign(kBatch, {});
    }
  }
  print(name, samples, bar);
}

}  // namespace
}  // namespace cairn

int main() {
  cairn::bench_load();
  cairn::bench_steps("step: 256 requests, no tier work", 0, 20);
  cairn::bench_steps("filled: 16 of 256 fill a block", 16, 0);
  return 0;
}
