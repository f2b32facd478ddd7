// The batch calls allocate nothing: counted in a program whose every operator new passes here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/engine_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// Not inlined: g++ 12 would see a free() of what a new made, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
// Without it the sanitizer's own form allocates what the next function frees.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return ::operator new(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace cairn {
namespace {

template <typename Work>
std::size_t allocations_of(Work work) {
  const std::size_t before = allocations;
  work();
  return allocations - before;
}

TEST(AllocationTest, HashingRunsOfBlocksAllocatesNothing) {
  const std::vector<Token> tokens(16 * 500, 7);
  std::vector<BlockKey> keys(500);
  std::vector<BlockHash> hashes(500);
  const MmRun run{.offset = 100, .length = 300, .mm_hash = 1};
  for (const KeyHasher& hasher : {KeyHasher::dynamo(), KeyHasher::of_process()}) {
    for (const std::uint32_t block_size : {16U, 17U, 100U}) {
      EXPECT_EQ(allocations_of([&] {
                  EXPECT_TRUE(hash_blocks(tokens, block_size, hasher, std::nullopt, keys, hashes, {&run, 1}));
                }),
                0U);
    }
  }
}

TEST(AllocationTest, DigestsOfRunsAllocateNothing) {
  const std::vector<Token> tokens(16 * 500, 7);
  std::vector<Digest> digests(500);
  std::vector<BlockKey> keys(500);
  const VllmMmItem item{"image", 20, 100};
  const VllmHashing hashing{.block_size = 16, .extras = {.lora_name = "a", .mm_items = {&item, 1}, .cache_salt = "s"}};
  const KeyHasher vllm = KeyHasher::make({.scheme = KeyScheme::kVllm});
  const KeyHasher sglang = KeyHasher::make({.scheme = KeyScheme::kSglang});
  EXPECT_EQ(allocations_of([&] {
              EXPECT_TRUE(vllm_hash_blocks(tokens, hashing, std::nullopt, digests));
              EXPECT_TRUE(vllm_keys(vllm, std::nullopt, digests, keys));
              EXPECT_TRUE(sglang_hash_pages(tokens, 16, std::nullopt, digests));
              EXPECT_TRUE(sglang_keys(sglang, std::nullopt, digests, keys));
            }),
            0U);
}

}  // namespace
}  // namespace cairn
