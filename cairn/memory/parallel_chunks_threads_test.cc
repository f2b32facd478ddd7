#include "cairn/memory/parallel_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cairn/memory/system_region.h"

namespace cairn {
namespace {

struct Case {
  std::uint64_t bytes;
  std::uint64_t chunk;
  unsigned threads;
};

TEST(ParallelChunksTest, EveryByteOnceAndProgressToTheEnd) {
  for (const Case& one : {Case{1, 10, 0}, Case{10, 10, 4}, Case{11, 10, 4}, Case{100'003, 100, 8}, Case{5'000, 1, 3},
                          Case{100, 10, 1}, Case{64, 8, 0}}) {
    std::vector<std::atomic<int>> touched(one.bytes);
    std::vector<std::uint64_t> seen;
    const std::thread::id caller = std::this_thread::get_id();
    const Status status = for_each_chunk({.bytes = one.bytes,
                                          .chunk = one.chunk,
                                          .threads = one.threads,
                                          .progress =
                                              [&](std::uint64_t done, std::uint64_t total) {
                                                EXPECT_EQ(std::this_thread::get_id(), caller);
                                                EXPECT_EQ(total, one.bytes);
                                                seen.push_back(done);
                                              }},
                                         [&](std::uint64_t offset, std::uint64_t bytes) -> Status {
                                           EXPECT_LE(bytes, one.chunk);
                                           for (std::uint64_t i = offset; i < offset + bytes; ++i) {
                                             touched[i].fetch_add(1, std::memory_order_relaxed);
                                           }
                                           return {};
                                         });
    ASSERT_TRUE(status);
    EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& count) { return count == 1; }));
    ASSERT_FALSE(seen.empty());
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), one.bytes);
  }
}

TEST(ParallelChunksTest, WhatThreadsWroteIsSeenAfterwards) {
  std::vector<int> plain(4096, 0);  // not atomic: returning orders it
  for (int round = 1; round <= 50; ++round) {
    ASSERT_TRUE(for_each_chunk({.bytes = plain.size(), .chunk = 64, .threads = 4},
                               [&](std::uint64_t offset, std::uint64_t bytes) -> Status {
                                 std::fill_n(plain.begin() + static_cast<std::ptrdiff_t>(offset), bytes, round);
                                 return {};
                               }));
    ASSERT_EQ(std::count(plain.begin(), plain.end(), round), 4096);
  }
}

TEST(ParallelChunksTest, AFailureStopsTheRestAndIsReturned) {
  for (const unsigned threads : {1U, 4U}) {
    std::atomic<std::uint64_t> begun{0};
    std::uint64_t reported = 0;
    const Status status = for_each_chunk({.bytes = 1'000'000,
                                          .chunk = 1,
                                          .threads = threads,
                                          .progress = [&](std::uint64_t done, auto) { reported = done; }},
                                         [&](std::uint64_t offset, std::uint64_t) -> Status {
                                           begun.fetch_add(1, std::memory_order_relaxed);
                                           if (offset >= 100) {
                                             return fail(ErrorCode::kExhausted, "chunk " + std::to_string(offset));
                                           }
                                           return {};
                                         });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kExhausted);
    EXPECT_LE(begun.load(), 100 + threads);
    EXPECT_LE(reported, 100U);
  }
}

TEST(ParallelChunksTest, RegionsAreMadeByManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> made{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&made] {
      const Result<RegionPtr> region = system_region({.size = std::uint64_t{33} << 20, .threads = 3});
      if (region && (*region)->base()[(*region)->size() - 1] == std::byte{0}) {
        made.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(made.load(), 4);
}

}  // namespace
}  // namespace cairn
