#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "cairn/base/mutex.h"

namespace cairn {
namespace {

// A plain counter loses increments, and TSan complains, unless the lock excludes and orders.
TEST(MutexThreadsTest, ExcludesUnderContention) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20'000;
  Mutex mutex(LockRank::kPool);
  long counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const MutexLock lock(mutex);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(counter, long{kThreads} * kRounds);
}

}  // namespace
}  // namespace cairn
