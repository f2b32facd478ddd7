// The time to make the keys of a long prompt with the batch functions.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <ctime>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/engine_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

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

// Runs `work`, which makes the keys of `blocks` blocks, as often as the framework says. Counts processor time: the
// work never waits, and on a shared machine wall-clock time would include the work of others.
template <typename Work>
void measure(benchmark::State& state, std::size_t blocks, Work work) {
  const std::clock_t start = std::clock();
  for (auto _ : state) {
    work();
    benchmark::ClobberMemory();
  }
  const double nanoseconds = static_cast<double>(std::clock() - start) * (1e9 / CLOCKS_PER_SEC);
  state.counters["ns_per_block"] =
      nanoseconds / (static_cast<double>(state.iterations()) * static_cast<double>(blocks));
}

void hash_with(benchmark::State& state, const KeyHasher& hasher, std::uint32_t block_size) {
  const std::vector<Token> tokens = prompt();
  std::vector<BlockKey> keys(tokens.size() / block_size);
  measure(state, keys.size(),
          [&] { benchmark::DoNotOptimize(hash_blocks(tokens, block_size, hasher, std::nullopt, keys)); });
}

void hash_native(benchmark::State& state, std::uint32_t block_size) {
  hash_with(state, KeyHasher::make(Namespace{}), block_size);
}

void hash_dynamo(benchmark::State& state, std::uint32_t block_size) {
  hash_with(state, KeyHasher::dynamo(), block_size);
}

// One block at a time, as the tokens of an answer are generated.
void hash_one(benchmark::State& state, std::uint32_t block_size) {
  const KeyHasher hasher = KeyHasher::make(Namespace{});
  const std::vector<Token> tokens = prompt();
  std::vector<BlockKey> keys(tokens.size() / block_size);
  measure(state, keys.size(), [&] {
    std::optional<BlockKey> parent;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      benchmark::DoNotOptimize(hash_blocks(std::span(tokens).subspan(i * block_size, block_size), block_size, hasher,
                                           parent, {&keys[i], 1}));
      parent = keys[i];
    }
  });
}

void salt_request(benchmark::State& state) {
  const KeyHasher hasher = KeyHasher::make(Namespace{});
  measure(state, 1, [&] { benchmark::DoNotOptimize(hasher.with({.salt = "tenant-a", .lora_name = "alpha-7b"})); });
}

void hash_vllm(benchmark::State& state, std::uint32_t block_size) {
  const std::vector<Token> tokens = prompt();
  const VllmHashing hashing{.block_size = block_size};
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kVllm});
  std::vector<Digest> digests(tokens.size() / block_size);
  std::vector<BlockKey> keys(digests.size());
  measure(state, keys.size(), [&] {
    benchmark::DoNotOptimize(vllm_hash_blocks(tokens, hashing, std::nullopt, digests));
    benchmark::DoNotOptimize(vllm_keys(hasher, std::nullopt, digests, keys));
  });
}

void hash_sglang(benchmark::State& state, std::uint32_t page_size) {
  const KeyHasher hasher = KeyHasher::make({.scheme = KeyScheme::kSglang});
  const std::vector<Token> tokens = prompt();
  std::vector<Digest> digests(tokens.size() / page_size);
  std::vector<BlockKey> keys(digests.size());
  measure(state, keys.size(), [&] {
    benchmark::DoNotOptimize(sglang_hash_pages(tokens, page_size, std::nullopt, digests));
    benchmark::DoNotOptimize(sglang_keys(hasher, std::nullopt, digests, keys));
  });
}

BENCHMARK_CAPTURE(hash_native, 4, 4)->Name("hash/4");
BENCHMARK_CAPTURE(hash_native, 16, 16)->Name("hash/16");
BENCHMARK_CAPTURE(hash_native, 64, 64)->Name("hash/64");
BENCHMARK_CAPTURE(hash_one, 16, 16)->Name("hash_one/16");
BENCHMARK(salt_request)->Name("salt");
BENCHMARK_CAPTURE(hash_dynamo, 16, 16)->Name("dynamo/16");
BENCHMARK_CAPTURE(hash_vllm, 16, 16)->Name("vllm/16");
BENCHMARK_CAPTURE(hash_sglang, 16, 16)->Name("sglang/16");

}  // namespace
}  // namespace cairn

BENCHMARK_MAIN();
