// An offloader beside threads that use the upper pool, with copies on threads of their own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/offload/offload_testing.h"
#include "cairn/transfer/host_executor.h"

namespace cairn::testing {
namespace {

void run_threads(OffloadMode mode) {
  constexpr std::uint32_t kUpper = 256;
  constexpr std::uint32_t kLower = 2'048;
  const TestLayout upper_memory = tiny_layout(kUpper);
  const TestLayout lower_memory = tiny_layout(kLower);
  const auto registry = *BlockRegistry::create(kUpper + kLower);
  EdgeTeller teller;
  std::atomic<std::uint32_t> woken{0};
  const auto wake = [&woken] {
    ++woken;
    woken.notify_one();
  };
  const auto upper = *Tier::make(
      {.level = CacheLevel::kG2,
       .layout = upper_memory.layout(),
       .pool = BlockPoolOptions{
           .block_size = kBlockSize, .observers = {registry.get(), &teller}, .low_water = 32, .when_low = wake}});
  const auto lower = *Tier::make({.level = CacheLevel::kG3,
                                  .layout = lower_memory.layout(),
                                  .pool = BlockPoolOptions{.block_size = kBlockSize, .observers = {registry.get()}}});
  auto executor = std::make_unique<HostExecutor>(steady_clock(), HostExecutor::Options{.threads = 2});
  const auto link = *TierLink::make(*upper, *lower, *executor, steady_clock());
  const auto offloader =
      *Offloader::make(*link, *registry, {.mode = mode, .batch = 8, .queue = 100'000}, steady_clock(), wake, {});
  teller.offloader = offloader.get();

  std::atomic<bool> is_over{false};
  std::thread pumping([&] {
    for (std::uint32_t seen = woken; !is_over || !offloader->is_idle(); seen = woken) {
      if (!offloader->pump() && !(is_over && offloader->is_idle())) {
        woken.wait(seen);
      }
    }
  });
  std::atomic<std::uint32_t> asked{0};
  std::atomic<std::uint32_t> reported{0};
  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 2'000; ++i) {
      const Keys keys = chain(random() % 500, 1 + random() % 4);
      const ImmutableBlocks found = upper->pool()->match_prefix(keys);
      if (found.size() == keys.size()) {
        continue;
      }
      if (random() % 16 == 0) {
        ++asked;
        if (!offloader->offload({.keys = keys, .done = [&reported](OffloadOutcome&&) { ++reported; }})) {
          --asked;
        }
      }
      const Keys rest(keys.begin() + found.size(), keys.end());
      Result<MutableBlocks> blocks = upper->pool()->allocate(static_cast<std::uint32_t>(rest.size()));
      ASSERT_TRUE(blocks) << "a few blocks can be allocated at any time";
      for (std::size_t j = 0; j < rest.size(); ++j) {
        write_block(upper_memory, blocks->block_ids()[j], rest[j]);
      }
      (void)*(*(*std::move(blocks)).complete({.keys = rest})).register_blocks();
    }
  };
  std::vector<std::thread> workers;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    workers.emplace_back(work, seed);
  }
  for (std::thread& worker : workers) {
    worker.join();
  }
  is_over = true;  // pending blocks are still copied
  wake();
  pumping.join();
  offloader->end();
  executor.reset();

  EXPECT_EQ(reported, asked);
  EXPECT_GT(offloader->status().copied, 0U);  // a late pump() finds less to copy
  EXPECT_EQ(upper->pool()->counts().active, 0U);
  EXPECT_EQ(lower->pool()->counts().active, 0U);
  upper->pool()->check_invariants();
  lower->pool()->check_invariants();
  for (const BlockKey& key : resident_keys(*upper->pool())) {
    ASSERT_TRUE(mode == OffloadMode::kAhead || lower->pool()->contains(key)) << key.to_string();
  }
  for (const BlockKey& key : resident_keys(*lower->pool())) {
    const PinnedBlocks held = lower->pool()->hold({{key}});
    ASSERT_EQ(lower_memory.gather(index_of(held.block_ids()[0])), bytes_of(key)) << key.to_string();
  }
}

TEST(OffloadThreadsTest, AheadOfNeed) { run_threads(OffloadMode::kAhead); }
TEST(OffloadThreadsTest, OnRegistration) { run_threads(OffloadMode::kOnRegistration); }

}  // namespace
}  // namespace cairn::testing
