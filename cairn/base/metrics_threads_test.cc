#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cairn/base/metrics.h"

namespace cairn {
namespace {

// Threads look up the same figures and record into them while another reads: nothing is lost, and no figure decreases.
TEST(MetricsThreadsTest, NothingIsLostWhileOthersRegisterAndRead) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2'000;
  Metrics metrics;
  Counter& all = metrics.counter("all_total", "");
  std::atomic<bool> done{false};
  std::thread reader([&] {
    std::uint64_t last = 0;
    while (!done.load()) {
      const std::uint64_t now = all.value();
      EXPECT_GE(now, last);
      last = now;
      EXPECT_THAT(metrics.to_prometheus(), ::testing::HasSubstr("# TYPE all_total counter\n"));
      EXPECT_FALSE(metrics.snapshot().empty());
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        all.add();
        metrics.counter("some_total", "", {{"part", std::to_string(i % 8)}}).add(2);
        metrics.gauge("level", "").add(t % 2 == 0 ? 1 : -1);
        metrics.histogram("sizes", "", {}, Histogram::Unit::kNumber).record(std::uint64_t{4});
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  done.store(true);
  reader.join();

  constexpr std::uint64_t kAll = std::uint64_t{kThreads} * kRounds;
  EXPECT_EQ(all.value(), kAll);
  std::uint64_t some = 0;
  for (int part = 0; part < 8; ++part) {
    some += metrics.counter("some_total", "", {{"part", std::to_string(part)}}).value();
  }
  EXPECT_EQ(some, 2 * kAll);
  EXPECT_EQ(metrics.gauge("level", "").value(), 0);
  const Histogram& sizes = metrics.histogram("sizes", "", {}, Histogram::Unit::kNumber);
  EXPECT_EQ(sizes.count(), kAll);
  EXPECT_EQ(sizes.sum(), static_cast<double>(4 * kAll));
}

}  // namespace
}  // namespace cairn
