// The hot paths of a block pool, in nanoseconds per block. Names: WORKLOAD/POLICY/CHAIN/POOL[/threads:N]
//
//   active    match a chain of CHAIN blocks that is in use, and release it
//   inactive  match a chain that is not in use, and release it
//   churn     allocate CHAIN blocks by evicting, complete, register and release them, in a full pool
//   fill      the same in an empty pool, until it is full
//   restore   restore POOL blocks into an empty pool with the default policy
//   bytes     metadata of a pool of POOL blocks and of its registry
//   hold      a million calls on chains of CHAIN blocks in a full pool, from the first on: the longest time that a call took
//             the processor, which is at least as long as it held the pool's lock; for each kind of call, in microseconds
//   read      dependent random reads of cache lines in as much memory as a pool of POOL blocks has: the cost of a miss
//
// POOL is the number of blocks in the pool. If it equals CHAIN, there is one chain, which all threads share; otherwise
// each step takes a random chain, so that threads mostly use different ones.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cairn/base/page_array.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tokens/block_key.h"

namespace cairn {
namespace {

constexpr std::uint32_t kBlockSize = 16;

// Ends the program: a benchmark of a pool that fails measures nothing.
template <typename T, typename E>
T must(Result<T, E> result) {
  if (!result) {
    std::fputs("pool_bench: a pool operation failed\n", stderr);
    std::exit(1);
  }
  return *std::move(result);
}

std::unique_ptr<BlockPool> new_pool(PolicyKind policy, std::uint32_t blocks) {
  return must(BlockPool::create({.capacity = blocks, .block_size = kBlockSize, .policy = policy}));
}

// Chains of keys with distinct roots, one after the other in one array.
class Chains {
 public:
  Chains(std::uint32_t chains, std::uint32_t length, std::uint64_t seed) : length_(length) {
    keys_.reserve(std::size_t{chains} * length);
    std::mt19937_64 random(seed);
    for (std::uint32_t chain = 0; chain < chains; ++chain) {
      SequenceHash parent{0};
      for (std::uint32_t position = 0; position < length; ++position) {
        const SequenceHash current{random()};
        keys_.push_back(BlockKey::make_checked(position, current, parent));
        parent = current;
      }
    }
  }
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(keys_.size() / length_); }
  [[nodiscard]] std::span<const BlockKey> operator[](std::uint32_t chain) const {
    return std::span(keys_).subspan(std::size_t{chain} * length_, length_);
  }

 private:
  std::uint32_t length_;
  std::vector<BlockKey> keys_;
};

ImmutableBlocks store(BlockPool& pool, std::span<const BlockKey> keys) {
  MutableBlocks blocks = must(pool.allocate(static_cast<std::uint32_t>(keys.size())));
  return must(must(std::move(blocks).complete({.keys = keys})).register_blocks());
}

// Cheap enough not to show in the figures.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}
  std::uint32_t below(std::uint32_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(((state_ >> 32) * bound) >> 32);
  }

 private:
  std::uint64_t state_;
};

// Measures the loop of one thread. With several threads, the figure is the time in which all together handle one block.
class Stopwatch {
 public:
  explicit Stopwatch(benchmark::State& state) : state_(state) {}
  void start() { begin_ = std::chrono::steady_clock::now(); }
  void stop() { elapsed_ += std::chrono::steady_clock::now() - begin_; }
  void report(const char* counter, std::uint64_t steps) {
    state_.counters[counter] = benchmark::Counter(
        std::chrono::duration<double, std::nano>(elapsed_).count() / static_cast<double>(steps) / state_.threads(),
        benchmark::Counter::kAvgThreads);
  }

 private:
  benchmark::State& state_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::duration elapsed_{0};
};

struct Setting {
  std::string workload;
  PolicyKind policy = PolicyKind::kLru;
  std::uint32_t chain = 0;
  std::uint32_t blocks = 0;

  [[nodiscard]] std::string name() const {
    return workload + "/" + std::string(to_string(policy)) + "/" + std::to_string(chain) + "/" + std::to_string(blocks);
  }
};

// A pool full of chains, shared by all runs and threads of one benchmark. Only one exists at a time.
class FullPool {
 public:
  FullPool(const Setting& setting, bool held, std::uint32_t chains_for_each_resident)
      : pool_(new_pool(setting.policy, setting.blocks)),
        resident_(setting.blocks / setting.chain),
        chains_(resident_ * chains_for_each_resident, setting.chain, 1) {
    // In random order, as chains are stored in practice.
    std::vector<std::uint32_t> order(resident_);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(2));
    for (const std::uint32_t i : order) {
      ImmutableBlocks stored = store(*pool_, chains_[i]);
      if (held) {
        holders_.push_back(std::move(stored));
      }
    }
  }

  // The pool for this setting; replaces the pool of another setting.
  static FullPool& get(const Setting& setting, bool held, std::uint32_t chains_for_each_resident = 1) {
    static std::string name;
    static std::unique_ptr<FullPool> current;
    if (name != setting.name()) {
      current.reset();
      current = std::make_unique<FullPool>(setting, held, chains_for_each_resident);
      name = setting.name();
    }
    return *current;
  }

  [[nodiscard]] BlockPool& pool() { return *pool_; }
  [[nodiscard]] const Chains& chains() const { return chains_; }
  [[nodiscard]] std::uint32_t resident() const { return resident_; }
  // The chains in turn, starting with the first one that is not resident.
  std::span<const BlockKey> next_chain() { return chains_[next_++ % chains_.count()]; }

 private:
  std::unique_ptr<BlockPool> pool_;
  const std::uint32_t resident_;
  const Chains chains_;
  std::uint32_t next_ = resident_;
  std::vector<ImmutableBlocks> holders_;  // destroyed before the pool
};

void match_and_release(benchmark::State& state, const Setting& setting) {
  static FullPool* full = nullptr;
  if (state.thread_index() == 0) {
    full = &FullPool::get(setting, setting.workload == "active");
  }
  Random random(17 + static_cast<std::uint64_t>(state.thread_index()));
  std::uint64_t blocks = 0;
  Stopwatch stopwatch(state);
  for (auto _ : state) {  // all threads wait for each other here before the first iteration
    if (blocks == 0) {
      stopwatch.start();
    }
    const ImmutableBlocks match = full->pool().match_prefix(full->chains()[random.below(full->resident())]);
    blocks += match.size();
  }
  stopwatch.stop();
  stopwatch.report("ns_per_block", blocks);
}

void churn(benchmark::State& state, const Setting& setting) {
  FullPool& full = FullPool::get(setting, false, 2);
  std::uint64_t blocks = 0;
  Stopwatch stopwatch(state);
  stopwatch.start();
  for (auto _ : state) {
    blocks += store(full.pool(), full.next_chain()).size();
  }
  stopwatch.stop();
  stopwatch.report("ns_per_block", blocks);
}

void fill(benchmark::State& state, const Setting& setting) {
  const Chains chains(setting.blocks / setting.chain, setting.chain, 1);
  std::uint64_t blocks = 0;
  Stopwatch stopwatch(state);
  for (auto _ : state) {
    state.PauseTiming();
    std::unique_ptr<BlockPool> pool = new_pool(setting.policy, setting.blocks);
    state.ResumeTiming();
    stopwatch.start();
    for (std::uint32_t i = 0; i < chains.count(); ++i) {
      blocks += store(*pool, chains[i]).size();
    }
    stopwatch.stop();
    state.PauseTiming();
    pool.reset();
    state.ResumeTiming();
  }
  stopwatch.report("ns_per_block", blocks);
}

void bytes(benchmark::State& state, std::uint32_t blocks) {
  const std::unique_ptr<BlockRegistry> registry = must(BlockRegistry::create(blocks));
  const std::unique_ptr<BlockPool> pool = must(BlockPool::create({.capacity = blocks,
                                                                  .block_size = kBlockSize,
                                                                  .policy = PolicyKind::kLineageTick,
                                                                  .observers = {registry.get()}}));
  const Chains chains(blocks / 128, 128, 1);
  for (std::uint32_t i = 0; i < chains.count(); ++i) {
    (void)store(*pool, chains[i]);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(pool->bytes());
  }
  state.counters["bytes_per_block"] = static_cast<double>(pool->bytes() + registry->bytes()) / blocks;
}

void dependent_read(benchmark::State& state, std::uint32_t blocks) {
  struct alignas(64) Line {
    std::uint32_t next;
  };
  constexpr std::uint64_t kBytesPerBlock = 96;
  const auto lines = static_cast<std::uint32_t>(blocks * kBytesPerBlock / sizeof(Line));
  PageArray<Line> memory = must(PageArray<Line>::create(lines));
  std::vector<std::uint32_t> order(lines);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  for (std::uint32_t i = 0; i < lines; ++i) {
    memory[order[i]].next = order[(i + 1) % lines];
  }
  std::uint32_t at = 0;
  Stopwatch stopwatch(state);
  stopwatch.start();
  for (auto _ : state) {
    at = memory[at].next;
    benchmark::DoNotOptimize(at);
  }
  stopwatch.stop();
  stopwatch.report("ns_per_read", state.iterations());
}

// The longest processor time of a call of one kind. Wall-clock time would count what other processes do.
class Longest {
 public:
  template <typename Call>
  auto time(Call call) {
    const double begin = now_us();
    auto result = call();
    note(now_us() - begin);
    return result;
  }
  void note(double us) { longest_us_ = std::max(longest_us_, us); }
  [[nodiscard]] double us() const { return longest_us_; }
  static double now_us() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  }

 private:
  double longest_us_ = 0;
};

void hold(benchmark::State& state, const Setting& setting) {
  constexpr std::uint32_t kCalls = 1'000'000;
  constexpr std::uint32_t kCallsInAStep = 5;
  FullPool& full = FullPool::get(setting, false, 2);
  BlockPool& pool = full.pool();
  Random random(17);
  Longest match;
  Longest release;
  Longest allocate;
  Longest register_blocks;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < kCalls / kCallsInAStep; ++i) {
      std::optional<ImmutableBlocks> used;
      const std::span<const BlockKey> old = full.chains()[random.below(full.chains().count())];
      used = match.time([&] { return pool.match_prefix(old); });
      double begin = Longest::now_us();
      used.reset();
      release.note(Longest::now_us() - begin);
      const std::span<const BlockKey> keys = full.next_chain();
      MutableBlocks blocks = must(allocate.time([&] { return pool.allocate(setting.chain); }));
      CompleteBlocks complete = must(std::move(blocks).complete({.keys = keys}));
      used = must(register_blocks.time([&] { return std::move(complete).register_blocks(); }));
      begin = Longest::now_us();
      used.reset();
      release.note(Longest::now_us() - begin);
    }
  }
  state.counters["match_us"] = match.us();
  state.counters["release_us"] = release.us();
  state.counters["allocate_us"] = allocate.us();
  state.counters["register_us"] = register_blocks.us();
}

// As for a tier that outlived the process: all blocks in one call, with block ids in random order.
void restore(benchmark::State& state, std::uint32_t blocks) {
  constexpr std::uint32_t kLength = 500;
  const Chains chains(blocks / kLength, kLength, 1);
  std::vector<std::uint32_t> block_ids(blocks);
  std::iota(block_ids.begin(), block_ids.end(), 0U);
  std::shuffle(block_ids.begin(), block_ids.end(), std::mt19937_64(2));
  std::vector<RestoredBlock> restored;
  for (std::uint32_t chain = 0; chain < chains.count(); ++chain) {
    for (std::uint32_t i = kLength; i-- > 0;) {
      restored.push_back({BlockId{block_ids[restored.size()]}, chains[chain][i]});
    }
  }
  Stopwatch stopwatch(state);
  for (auto _ : state) {
    const std::unique_ptr<BlockPool> pool = new_pool(PolicyKind::kAdaptive, blocks);
    stopwatch.start();
    const bool done = pool->restore(restored).has_value();
    stopwatch.stop();
    if (!done) {
      state.SkipWithError("the blocks were not restored");
    }
  }
  stopwatch.report("ns_per_block", state.iterations() * blocks);
}

void add(const Setting& setting, void (*run)(benchmark::State&, const Setting&), int threads = 1) {
  auto* bench = benchmark::RegisterBenchmark(setting.name().c_str(),
                                             [setting, run](benchmark::State& state) { run(state, setting); });
  if (threads > 1) {
    bench->Threads(threads);
  }
}

void add_all() {
  constexpr std::uint32_t kMillion = 1'000'000;
  const std::vector<std::uint32_t> chain_lengths = {8, 32, 128};
  for (const std::uint32_t blocks : {kMillion, 10 * kMillion}) {
    benchmark::RegisterBenchmark(("read/" + std::to_string(blocks)).c_str(),
                                 [blocks](benchmark::State& state) { dependent_read(state, blocks); });
  }
  for (const PolicyKind policy : kAllPolicies) {
    for (const std::uint32_t chain : chain_lengths) {
      for (const std::uint32_t blocks : {chain, kMillion}) {
        add({"active", policy, chain, blocks}, match_and_release);
        add({"inactive", policy, chain, blocks}, match_and_release);
        add({"churn", policy, chain, blocks}, churn);
      }
      add({"fill", policy, chain, kMillion}, fill);
    }
    for (const char* workload : {"active", "inactive"}) {
      add({workload, policy, 128, 10 * kMillion}, match_and_release);
    }
    add({"churn", policy, 128, 10 * kMillion}, churn);
  }
  for (const PolicyKind policy : {PolicyKind::kLineageTick, PolicyKind::kAdaptive}) {
    const Setting setting{"hold", policy, 128, 10 * kMillion};
    benchmark::RegisterBenchmark(setting.name().c_str(), [setting](benchmark::State& state) {
      hold(state, setting);
    })->Iterations(1);
  }
  for (const PolicyKind policy : {PolicyKind::kLru, PolicyKind::kLineageTick, PolicyKind::kAdaptive}) {
    for (const std::uint32_t blocks : {128U, kMillion}) {
      for (const char* workload : {"active", "inactive"}) {
        for (const int threads : {2, 4, 8, 16}) {
          add({workload, policy, 128, blocks}, match_and_release, threads);
        }
      }
    }
  }
  for (const std::uint32_t blocks : {kMillion, 10 * kMillion}) {
    benchmark::RegisterBenchmark(("restore/" + std::to_string(blocks)).c_str(),
                                 [blocks](benchmark::State& state) { restore(state, blocks); });
    benchmark::RegisterBenchmark(("bytes/" + std::to_string(blocks)).c_str(),
                                 [blocks](benchmark::State& state) { bytes(state, blocks); });
  }
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
