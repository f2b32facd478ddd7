// Many threads load overlapping sequences while others evict them.
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "cairn/onboard/onboarder_testing.h"
#include "cairn/transfer/host_executor.h"

namespace cairn {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::chain;
using testing::first_of;
using testing::joined;
using testing::Keys;
using testing::MemoryTier;

// Calls pump() when there is something to do.
class Pump {
 public:
  void begin(Onboarder& onboarder) {
    thread_ = std::thread([this, &onboarder] {
      std::unique_lock lock(mutex_);
      while (!ended_) {
        news_.wait_for(lock, milliseconds(1), [this] { return ended_ || woken_; });
        woken_ = false;
        lock.unlock();
        (void)onboarder.pump();
        lock.lock();
      }
    });
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    news_.notify_one();
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      news_.notify_one();
    }
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool woken_ = false;
  bool ended_ = false;
  std::thread thread_;
};

Keys keys_of(std::uint64_t name, std::size_t count) {
  const Keys trunk = chain(0, 10);
  return first_of(joined(trunk, chain(name, 30, trunk)), count);
}

TEST(OnboarderThreads, LoadsOverlapAndBlocksAreEvictedMeanwhile) {
  constexpr int kLoaders = 4;
  constexpr int kLoads = 250;
  constexpr std::uint32_t kSequences = 5;
  const Clock& clock = steady_clock();
  const std::unique_ptr<BlockRegistry> registry = *BlockRegistry::create(700);
  MemoryTier device(CacheLevel::kG1, 200, clock, *registry);
  MemoryTier host(CacheLevel::kG2, 100, clock, *registry);
  MemoryTier disk(CacheLevel::kG3, 400, clock, *registry);
  for (std::uint64_t name = 1; name <= kSequences; ++name) {
    (void)disk.put(keys_of(name, 40));
  }
  {
    std::unique_ptr<TierLink> host_to_device;
    std::unique_ptr<TierLink> disk_to_host;
    HostExecutor up(clock, {.threads = 1, .limit = 3});
    HostExecutor read(clock, {.threads = 1, .limit = 3});
    host_to_device = *TierLink::make(host.tier(), device.tier(), up, clock);
    disk_to_host = *TierLink::make(disk.tier(), host.tier(), read, clock);
    Pump pump;
    auto onboarder = *Onboarder::make({.device = &device.tier(),
                                       .host = &host.tier(),
                                       .disk = &disk.tier(),
                                       .host_to_device = host_to_device.get(),
                                       .disk_to_host = disk_to_host.get(),
                                       .registry = registry.get(),
                                       .block_size = testing::kBlockSize,
                                       .clock = &clock,
                                       .wake = [&pump] { pump.wake(); }},
                                      {});
    pump.begin(*onboarder);
    std::atomic<int> whole = 0;
    std::atomic<bool> is_over = false;
    std::vector<std::thread> loaders;
    for (int t = 0; t < kLoaders; ++t) {
      loaders.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<std::uint64_t>(t));
        for (int i = 0; i < kLoads; ++i) {
          const Keys keys = keys_of(1 + random() % kSequences, 1 + random() % 40);
          std::promise<LoadOutcome> reported;
          const Result<LoadId> id = onboarder->load(
              {.keys = keys, .deadline = clock.now() + seconds(60), .done = [&reported](LoadOutcome&& result) {
                 reported.set_value(std::move(result));
               }});
          ASSERT_TRUE(id.has_value());
          if (random() % 16 == 0) {
            onboarder->cancel(*id);
          }
          const LoadOutcome result = reported.get_future().get();
          whole += result.prefix == keys.size() ? 1 : 0;
          ASSERT_LE(result.prefix, keys.size());
          for (std::uint32_t k = 0; k < result.blocks.size(); ++k) {
            ASSERT_EQ(result.blocks.key(k), keys[k]);
            ASSERT_TRUE(device.holds(result.blocks.block_ids()[k], keys[k]));
          }
        }
      });
    }
    std::thread evictor([&] {
      while (!is_over) {
        (void)device.pool().reset_inactive();
        (void)host.pool().reset_inactive();
        (void)onboarder->locate(keys_of(1, 40));
        std::this_thread::yield();
      }
    });
    for (std::thread& loader : loaders) {
      loader.join();
    }
    is_over = true;
    evictor.join();
    onboarder->end();
    while (!onboarder->is_idle()) {
      std::this_thread::yield();
    }
    pump.end();
    EXPECT_GT(whole, kLoaders * kLoads / 2);
    EXPECT_EQ(onboarder->status().finished, static_cast<std::uint64_t>(kLoaders) * kLoads);
  }
  for (MemoryTier* tier : {&device, &host, &disk}) {
    const PoolCounts counts = tier->pool().counts();
    EXPECT_EQ(counts.available(), counts.total);
    tier->pool().check_invariants();
    EXPECT_TRUE(tier->wrong_blocks().empty());
  }
}

}  // namespace
}  // namespace cairn
