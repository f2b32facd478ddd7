// The cost of following events for a router: applying events to a view, and looking up how much of a request is cached.
//
//   events_bench --benchmark_filter=match
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "cairn/events/residency_view.h"

namespace {

using namespace cairn;

constexpr std::uint32_t kBlocks = 256;  // of a sequence: 4,096 tokens in blocks of 16

// `sequences` chains of kBlocks keys, with hashes that look like real ones.
std::vector<std::vector<StoredBlock>> make_chains(std::size_t sequences) {
  std::mt19937_64 random(7);
  std::vector<std::vector<StoredBlock>> chains(sequences);
  for (std::vector<StoredBlock>& chain : chains) {
    SequenceHash parent{0};
    for (std::uint32_t position = 0; position < kBlocks; ++position) {
      const SequenceHash hash{random()};
      chain.push_back({BlockKey::make_checked(position, hash, parent), BlockHash{random()}});
      parent = hash;
    }
  }
  return chains;
}

void check(const Status& status) {
  if (!status) {
    std::abort();
  }
}

Event stored(std::uint64_t sequence, const std::vector<StoredBlock>& chain) {
  return {
      .sequence = sequence, .tier = CacheLevel::kG1, .data = Stored{.parent = {}, .blocks = chain, .token_ids = {}}};
}

// Requests of kBlocks blocks that are all cached, in a view of `range` blocks.
void match(benchmark::State& state) {
  const auto chains = make_chains(static_cast<std::size_t>(state.range(0)) / kBlocks);
  ResidencyView view;
  std::vector<std::vector<BlockKey>> requests;
  for (const auto& chain : chains) {
    check(view.apply(stored(view.sequence() + 1, chain)));
    for (auto& keys = requests.emplace_back(); const StoredBlock& block : chain) {
      keys.push_back(block.key);
    }
  }
  std::shuffle(requests.begin(), requests.end(), std::mt19937_64(11));
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(view.match_prefix(requests[next]));
    next = next + 1 < requests.size() ? next + 1 : 0;
  }
  state.SetItemsProcessed(state.iterations() * kBlocks);
}
BENCHMARK(match)->Arg(1 << 16)->Arg(1 << 20)->Arg(1 << 22);

// Stores and removes sequences in a view of `range` blocks.
void apply(benchmark::State& state) {
  const auto chains = make_chains(static_cast<std::size_t>(state.range(0)) / kBlocks);
  ResidencyView view;
  for (const auto& chain : chains) {
    check(view.apply(stored(view.sequence() + 1, chain)));
  }
  std::size_t next = 0;
  for (auto _ : state) {
    Removed removed;
    for (const StoredBlock& block : chains[next]) {
      removed.keys.push_back(block.key);
    }
    check(view.apply({.sequence = view.sequence() + 1, .tier = CacheLevel::kG1, .data = std::move(removed)}));
    check(view.apply(stored(view.sequence() + 1, chains[next])));
    next = next + 1 < chains.size() ? next + 1 : 0;
  }
  state.SetItemsProcessed(state.iterations() * 2 * kBlocks);
}
BENCHMARK(apply)->Arg(1 << 16)->Arg(1 << 20);

}  // namespace

BENCHMARK_MAIN();
