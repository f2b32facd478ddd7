// Counts what the whole test program allocates, to show that appending to a log allocates nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>

#include "cairn/events/event_log.h"
#include "cairn/events/events_testing.h"

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// Not inlined: a compiler that sees through one of them takes the other for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    return memory;
  }
  throw std::bad_alloc();
}
// Without it the sanitizer's own form allocates what the next function frees.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return ::operator new(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace cairn {
namespace {

TEST(EventLogAllocationTest, AppendingAllocatesNothing) {
  const auto log = *EventLog::create({.blocks = 100, .token_ids = 500});
  const auto blocks = events_testing::chain(1, 0, 30);
  const auto keys = events_testing::keys_of(blocks);
  const auto larger_than_the_log = events_testing::chain(2, 0, 250);
  std::vector<Token> tokens(120);
  std::iota(tokens.begin(), tokens.end(), Token{0});

  const std::size_t before = allocations.load();
  ASSERT_GT(before, 0U);
  for (int i = 0; i < 50; ++i) {
    log->on_registered(CacheLevel::kG1, blocks, tokens);
    log->on_removed(CacheLevel::kG1, keys);
    log->on_registered(CacheLevel::kG2, larger_than_the_log, {});
    log->on_cleared(CacheLevel::kG2);
    log->suspend(CacheLevel::kG2);
    log->resume(CacheLevel::kG2);
  }
  EXPECT_EQ(allocations.load(), before);
}

}  // namespace
}  // namespace cairn
