// What it costs to name blocks: a long prompt, block by block, chained into keys by the batch calls.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/sglang_key.h"
#include "cairn/tokens/vllm_key.h"

namespace cairn {
namespace {

constexpr std::size_t kPromptTokens = 128 * 1024;

std::vector<Token> prompt() {
  std::vector<Token> tokens(kPromptTokens);
  std::iota(tokens.begin(), tokens.end(), Token{0});
  for (Token& token : tokens) {
    token = token * 2654435761U % 128'000;  // spread over a vocabulary
  }
  return tokens;
}

// Runs `work`, which names `blocks` blocks, as often as the framework asks for.
template <typename Work>
void measure(benchmark::State& state, std::size_t blocks, Work work) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    work();
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  state.counters["ns_per_block"] = elapsed.count() / static_cast<double>(state.iterations() * blocks);
}

void hash_native(benchmark::State& state, std::uint32_t block_size) {
  const std::vector<Token> tokens = prompt();
  std::vector<BlockKey> keys(tokens.size() / block_size);
  measure(state, keys.size(),
          [&] { benchmark::DoNotOptimize(hash_blocks(tokens, block_size, kNoSalt, std::nullopt, keys)); });
}

void hash_vllm(benchmark::State& state, std::uint32_t block_size) {
  const std::vector<Token> tokens = prompt();
  const VllmHashing hashing{.block_size = block_size};
  std::vector<Digest> digests(tokens.size() / block_size);
  std::vector<BlockKey> keys(digests.size());
  measure(state, keys.size(), [&] {
    benchmark::DoNotOptimize(vllm_hash_blocks(tokens, hashing, std::nullopt, digests));
    benchmark::DoNotOptimize(vllm_keys(NamespaceId{1}, std::nullopt, digests, keys));
  });
}

void hash_sglang(benchmark::State& state, std::uint32_t page_size) {
  const std::vector<Token> tokens = prompt();
  std::vector<Digest> digests(tokens.size() / page_size);
  std::vector<BlockKey> keys(digests.size());
  measure(state, keys.size(), [&] {
    benchmark::DoNotOptimize(sglang_hash_pages(tokens, page_size, std::nullopt, digests));
    benchmark::DoNotOptimize(sglang_keys(NamespaceId{1}, std::nullopt, digests, keys));
  });
}

BENCHMARK_CAPTURE(hash_native, 4, 4)->Name("hash/4");
BENCHMARK_CAPTURE(hash_native, 16, 16)->Name("hash/16");
BENCHMARK_CAPTURE(hash_native, 64, 64)->Name("hash/64");
BENCHMARK_CAPTURE(hash_vllm, 16, 16)->Name("vllm/16");
BENCHMARK_CAPTURE(hash_sglang, 16, 16)->Name("sglang/16");

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
