// The time to make a copy plan, and to expand it into the copies of a batch.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "cairn/layout/block_layout.h"
#include "cairn/transfer/copy_plan.h"

namespace cairn {
namespace {

constexpr KvShape kLlama8b{32, 2, 16, 8, 128, 16};
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

// A layout at made-up addresses, which are never accessed.
BlockLayoutPtr layout(const BlockLayout::Options& options) {
  static std::uint64_t next = std::uint64_t{1} << 40U;
  std::vector<RegionPtr> regions;
  const std::vector<std::uint64_t> sizes = *BlockLayout::region_sizes(options);
  for (const std::uint64_t size : sizes) {
    RegionFacts facts;
    facts.kind = MemoryKind::kDevice;
    facts.device = 0;
    facts.base = reinterpret_cast<std::byte*>(next);
    facts.size = size;
    next += size;
    regions.push_back(std::make_shared<Region>(facts, nullptr));
  }
  return *BlockLayout::make(options, std::move(regions));
}

enum class Order { kScattered, kInOrder };

std::vector<BlockPair> pairs_of(std::uint32_t count, Order order) {
  std::vector<BlockPair> pairs(count);
  std::vector<std::uint32_t> sources(count);
  std::iota(sources.begin(), sources.end(), 0U);
  if (order == Order::kScattered) {
    std::shuffle(sources.begin(), sources.end(), std::mt19937_64(1));
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    pairs[i] = {sources[i], i};
  }
  return pairs;
}

struct Case {
  Arrangement from;
  Arrangement to;
  std::uint32_t blocks;
  Order order;
  std::uint64_t max_bytes;
};

void expand(benchmark::State& state, const Case& run) {
  const CopyPlanPtr plan =
      *CopyPlan::make(layout({kLlama8b, run.from, run.blocks, 1}), layout({kLlama8b, run.to, run.blocks, 1}));
  const std::vector<BlockPair> pairs = pairs_of(run.blocks, run.order);
  std::vector<Copy> copies;
  for (auto _ : state) {
    if (!plan->check(pairs)) {
      state.SkipWithError("the block pairs do not fit the plan");
      return;
    }
    plan->expand(pairs, run.max_bytes, copies);
    benchmark::DoNotOptimize(copies.data());
  }
  state.counters["fragments"] = static_cast<double>(plan->runs_per_block() * pairs.size());
  state.counters["copies"] = static_cast<double>(copies.size());
}

// 1,563 blocks in 64 fragments each: 100,032 fragments.
constexpr std::uint32_t kBlocks = 1563;
BENCHMARK_CAPTURE(expand, gpu_to_host_scattered,
                  Case{Arrangement::kLayersKvNhd, Arrangement::kContiguousNhd, kBlocks, Order::kScattered, kNoLimit})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expand, host_to_gpu_scattered,
                  Case{Arrangement::kContiguousNhd, Arrangement::kLayersKvNhd, kBlocks, Order::kScattered, kNoLimit})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expand, host_to_gpu_in_order,
                  Case{Arrangement::kContiguousNhd, Arrangement::kLayersKvNhd, kBlocks, Order::kInOrder, kNoLimit})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expand, gpu_to_gpu_in_order,
                  Case{Arrangement::kLayersKvNhd, Arrangement::kLayersKvNhd, kBlocks, Order::kInOrder, kNoLimit})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expand, gpu_to_gpu_in_order_cut,
                  Case{Arrangement::kLayersKvNhd, Arrangement::kLayersKvNhd, kBlocks, Order::kInOrder, 32U << 10U})
    ->Unit(benchmark::kMillisecond);
// Row by row: 13 blocks of 8,192 rows.
BENCHMARK_CAPTURE(expand, nhd_to_hnd,
                  Case{Arrangement::kLayersKvNhd, Arrangement::kContiguousHnd, 13, Order::kScattered, kNoLimit})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expand, nhd_to_hnd_in_order,
                  Case{Arrangement::kLayersKvNhd, Arrangement::kLayersKvHnd, 13, Order::kInOrder, kNoLimit})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(expand, contiguous_100000_blocks,
                  Case{Arrangement::kContiguousNhd, Arrangement::kContiguousNhd, 100'000, Order::kScattered, kNoLimit})
    ->Unit(benchmark::kMillisecond);

void make_plan(benchmark::State& state) {
  const BlockLayoutPtr from = layout({kLlama8b, Arrangement::kLayersKvNhd, kBlocks, 1});
  const BlockLayoutPtr to = layout({kLlama8b, Arrangement::kContiguousNhd, kBlocks, 1});
  for (auto _ : state) {
    benchmark::DoNotOptimize(CopyPlan::make(from, to));
  }
}
BENCHMARK(make_plan)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
