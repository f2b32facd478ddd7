// The manager with its own thread, real executors and a real file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "cairn/manager/manager_testing.h"
#include "cairn/onboard/load_cost.h"
#include "cairn/tier/disk_file.h"
#include "cairn/transfer/stuck_executor_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::seconds;

class KvBlockManagerThreadsTest : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] ManagerConfig config(std::uint32_t device = 8, std::uint32_t host = 16, std::uint32_t disk = 16) const {
    ManagerConfig config = reference_config(folder_.in("blocks"), device, host, disk);
    config.disk.direct = GetParam();
    return config;
  }
  TestFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(DirectOrNot, KvBlockManagerThreadsTest, ::testing::Bool());

// Seed 002's test_offload, with the bytes.
TEST_P(KvBlockManagerThreadsTest, ARegisteredBlockIsOnHostAndDisk) {
  const KvBlockManager manager = *KvBlockManager::make(config());
  const Keys keys = chain(1, 3);
  cache_on_device(manager, keys);
  ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  EXPECT_TRUE(hold_their_bytes(manager, manager.host()->match_prefix(keys)));
  EXPECT_EQ(manager.disk()->match_prefix(keys).size(), 3U);
  (void)manager.reset(CacheLevel::kG1);
  (void)manager.reset(CacheLevel::kG2);
  const Result<LoadOutcome> loaded = load_and_wait(manager, keys);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, 3U);
  EXPECT_TRUE(hold_their_bytes(manager, loaded->blocks));
}

// Victims that are claimed to check whether they must be copied are held briefly too.
TEST_P(KvBlockManagerThreadsTest, NothingIsHeldOnceItIsDrained) {
  ManagerConfig ahead = config(48, 64, 128);
  ahead.offload_to_host = {.mode = OffloadMode::kAhead, .low_water = 0.5, .batch = 16};
  ahead.offload_to_disk = {.mode = OffloadMode::kAhead, .low_water = 0.5, .batch = 16};
  const KvBlockManager manager = *KvBlockManager::make(ahead);
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Keys keys = chain(i % 23, 6);
    const std::uint32_t found = load_and_wait(manager, keys)->prefix;
    cache_on_device(manager, Keys(keys.begin() + found, keys.end()));
    ASSERT_TRUE(manager.drain(seconds(30)).has_value());
    for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
      const PoolCounts counts = manager.pool(level)->counts();
      ASSERT_EQ(counts.active + counts.quarantined, 0U) << to_string(level) << " in turn " << i;
    }
  }
}

TEST_P(KvBlockManagerThreadsTest, TheLastCopyStopsItAndEveryLoadEnds) {
  std::atomic<int> ended{0};
  int begun = 0;
  {
    std::optional<KvBlockManager> first = *KvBlockManager::make(config(64, 64, 64));
    cache_on_device(*first, chain(1, 32));
    ASSERT_TRUE(first->drain(seconds(30)).has_value());
    (void)first->reset(CacheLevel::kG1);
    const KvBlockManager second = *first;
    first.reset();
    EXPECT_EQ(second.worker_id(), 1337U);
    for (int i = 0; i < 16; ++i) {
      begun += second.load({.keys = chain(1, 32), .done = [&ended](LoadOutcome&&) { ++ended; }}) ? 1 : 0;
    }
  }
  EXPECT_EQ(ended, begun);
  EXPECT_GT(begun, 0);
}

// Signals when the manager that holds it is destroyed.
class Farewell final : public LoadCostModel {
 public:
  explicit Farewell(std::promise<void>& gone) : gone_(gone) {}
  ~Farewell() override { gone_.set_value(); }
  [[nodiscard]] std::uint32_t worth_loading(const LoadQuestion&) const override { return 0; }

 private:
  std::promise<void>& gone_;
};

// The callback of a load has the last handle to the manager, on a thread that the manager's destructor waits for: it
// drops the handle in the call, or the handle is destroyed with the callback afterwards.
TEST_P(KvBlockManagerThreadsTest, TheLastCopyMayGoInACallback) {
  for (const bool in_the_call : {true, false}) {
    std::promise<void> gone;
    ManagerParts parts;
    parts.cost = std::make_shared<Farewell>(gone);
    std::optional<KvBlockManager> ours = *KvBlockManager::make(config(64, 64, 64), parts);
    parts.cost.reset();
    cache_on_device(*ours, chain(1, 8));
    ASSERT_TRUE(ours->drain(seconds(30)).has_value());
    (void)ours->reset(CacheLevel::kG1);
    std::promise<void> dropped;
    std::promise<std::uint32_t> loaded;
    LoadRequest request{
        .keys = chain(1, 8),
        .weigh = false,
        .done = [last = std::make_shared<std::optional<KvBlockManager>>(*ours),
                 ours_is_gone = dropped.get_future().share(), &loaded, in_the_call](LoadOutcome&& result) {
          ours_is_gone.wait();
          const std::uint32_t prefix = result.prefix;
          result.blocks = {};
          if (in_the_call) {
            last->reset();
          }
          loaded.set_value(prefix);
        }};
    ASSERT_TRUE(ours->load(std::move(request)).has_value());
    ours.reset();
    dropped.set_value();
    EXPECT_EQ(loaded.get_future().get(), 8U);
    ASSERT_EQ(gone.get_future().wait_for(seconds(60)), std::future_status::ready) << "the manager was not stopped";
  }
}

TEST_P(KvBlockManagerThreadsTest, ManyThreadsAndOneManager) {
  ManagerConfig small = config(48, 64, 128);
  small.offload_to_host = {.mode = OffloadMode::kAhead, .low_water = 0.2, .batch = 8};
  const KvBlockManager manager = *KvBlockManager::make(small);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < 60; ++i) {
        const Keys keys = chain((thread * 7 + i * 5) % 23, 6);
        const Result<LoadOutcome> loaded = load_and_wait(manager, keys);
        if (!loaded || !hold_their_bytes(manager, loaded->blocks)) {
          ++wrong;
          continue;
        }
        Result<MutableBlocks> room = manager.device()->allocate(6 - loaded->prefix);
        if (!room || room->empty()) {
          continue;
        }
        const Keys rest(keys.begin() + loaded->prefix, keys.end());
        for (std::size_t k = 0; k < rest.size(); ++k) {
          write_pattern(*manager.layout(CacheLevel::kG1), index_of(room->block_ids()[k]), seed_of(rest[k]));
        }
        auto complete = (*std::move(room)).complete({.keys = rest});
        const ImmutableBlocks registered = *(*std::move(complete)).register_blocks();
        if (i % 20 == 19) {
          (void)manager.reset(i % 40 == 19 ? CacheLevel::kG1 : CacheLevel::kG2);
          (void)manager.status();
          (void)manager.metrics().to_prometheus();
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(manager.drain(seconds(60)).has_value());
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    const PoolCounts counts = manager.pool(level)->counts();
    EXPECT_EQ(counts.active + counts.quarantined, 0U) << to_string(level);
    manager.pool(level)->check_invariants();
  }
}

// The scrub reads while traffic runs, through the same executor, and finds damage in blocks that no request reads.
TEST_P(KvBlockManagerThreadsTest, AScrubRunsBesideTheTraffic) {
  ManagerConfig scrubbed = config(32, 32, 64);
  const Keys damaged = chain(99, 2);
  {
    const KvBlockManager manager = *KvBlockManager::make(scrubbed);
    cache_on_device(manager, damaged);
    ASSERT_TRUE(manager.drain(seconds(30)).has_value());
  }
  {
    DiskFile file = *DiskFile::inspect(scrubbed.disk.path);
    const DiskRecovery recovery = *file.recover();
    ASSERT_EQ(recovery.entries.size(), 2U);
    const std::uint64_t at = file.data_offset() + index_of(recovery.entries[0].block_id) * file.block_step();
    std::fstream bytes(scrubbed.disk.path, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(at + 5));
    bytes << "?!?!?!?!";
  }
  scrubbed.disk.scrub_rate = 1'000'000'000;
  std::promise<std::string> found;
  ManagerParts parts;
  parts.on_incident = [&found, reported = false](const Incident& incident) mutable {
    if (incident.kind == Incident::Kind::kWrongBytes && !std::exchange(reported, true)) {
      found.set_value(incident.text);
    }
  };
  const KvBlockManager manager = *KvBlockManager::make(scrubbed, parts);
  std::future<std::string> text = found.get_future();
  std::uint64_t turns = 0;
  do {
    const Keys keys = chain(turns++ % 7, 4);
    const std::uint32_t there = load_and_wait(manager, keys)->prefix;
    cache_on_device(manager, Keys(keys.begin() + there, keys.end()));
  } while (text.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready && turns < 20'000);
  ASSERT_LT(turns, 20'000U);
  EXPECT_EQ(manager.status().scrub->damaged, 1U);
  EXPECT_EQ(manager.disk()->count_prefix(damaged) + manager.disk()->count_prefix({&damaged[1], 1}), 1U);
}

// A disk hangs while a load reads from it, and the engine shuts down.
TEST(KvBlockManagerStopThreadsTest, IoThatNeverReturnsDoesNotHoldUpTheStop) {
  const TestFolder folder;
  ManagerConfig config = reference_config(folder.in("blocks"));
  config.shutdown = std::chrono::milliseconds(20);
  const auto io = std::make_shared<StuckIo>();
  std::atomic<int> reported{0};
  std::vector<Incident> incidents;
  std::weak_ptr<const Region> host;
  {
    const KvBlockManager manager = *KvBlockManager::make(
        config, {.around =
                     [io](ExecutorKind, std::unique_ptr<TransferExecutor> inside) {
                       return std::make_unique<StuckExecutor>(io, std::move(inside));
                     },
                 .on_incident = [&](const Incident& incident) { incidents.push_back(incident); }});
    host = manager.layout(CacheLevel::kG2)->regions().front();
    const Keys keys = chain(1, 3);
    cache_on_device(manager, keys);
    ASSERT_TRUE(manager.drain(seconds(30)).has_value());
    (void)manager.reset(CacheLevel::kG1);
    (void)manager.reset(CacheLevel::kG2);
    io->hangs = true;
    ASSERT_TRUE(manager
                    .load({.keys = keys,
                           .deadline = steady_clock().now() + std::chrono::hours(1),
                           .done =
                               [&reported](LoadOutcome&& result) {
                                 EXPECT_EQ(result.prefix, 0U);
                                 ++reported;
                               }})
                    .has_value());
    while (io->stuck == 0) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(reported, 1) << "the load gets its outcome before the manager is gone";
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].kind, Incident::Kind::kShutdownTimedOut);
  EXPECT_EQ(to_string(incidents[0].kind), "shutdown timed out");
  EXPECT_THAT(incidents[0].text, ::testing::HasSubstr("I/O has not returned"));
  EXPECT_FALSE(host.expired()) << "the disk may still write to it";
  EXPECT_EQ(io->ended, 0);
  io->promise.set_value();
  // The manager's parts, which are destroyed last, keep it too: otherwise a thread that still destroys the manager
  // would outlive the program.
  while (io.use_count() > 1) {
    std::this_thread::yield();
  }
  EXPECT_TRUE(host.expired());
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(incidents.size(), 1U);
}

// A thread only reads bytes written after the last reset but one: a block that is filled during a reset may count as
// before or after it.
TEST_P(KvBlockManagerThreadsTest, ResetsRaceWithTraffic) {
  ManagerConfig small = config(48, 64, 128);
  small.offload_to_host = {.mode = OffloadMode::kAhead, .low_water = 0.2, .batch = 8};
  const KvBlockManager manager = *KvBlockManager::make(small);
  std::atomic<std::uint64_t> resets{0};  // that have returned
  std::atomic<int> wrong{0};             // read after the threads have ended
  const auto pattern_of = [](const BlockKey& key, std::uint64_t reset) { return seed_of(key) * 1009 + reset; };
  const auto is_of_late = [&](const ImmutableBlocks& blocks, std::uint32_t i, std::uint64_t before) {
    for (std::uint64_t reset = before == 0 ? 0 : before - 1; reset <= resets; ++reset) {
      if (!find_stranger(*manager.layout(CacheLevel::kG1), index_of(blocks.block_ids()[i]),
                         pattern_of(blocks.key(i), reset))) {
        return true;
      }
    }
    return false;
  };
  const auto run = [&](std::uint64_t thread) {
    for (std::uint64_t i = 0; i < 80 || resets < 8; ++i) {
      const Keys keys = chain((thread * 7 + i * 5) % 11, 6);
      const std::uint64_t before = resets;
      const Result<LoadOutcome> loaded = load_and_wait(manager, keys);
      for (std::uint32_t k = 0; loaded && k < loaded->blocks.size(); ++k) {
        wrong += is_of_late(loaded->blocks, k, before) ? 0 : 1;
      }
      const Keys rest(keys.begin() + (loaded ? loaded->prefix : 0), keys.end());
      Result<MutableBlocks> room = manager.device()->allocate(static_cast<std::uint32_t>(rest.size()));
      if (!room || room->empty()) {
        continue;
      }
      const std::uint64_t now = resets;
      for (std::size_t k = 0; k < rest.size(); ++k) {
        write_pattern(*manager.layout(CacheLevel::kG1), index_of(room->block_ids()[k]), pattern_of(rest[k], now));
      }
      (void)*(*(*std::move(room)).complete({.keys = rest})).register_blocks();
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back(run, thread);
  }
  std::atomic<bool> is_over{false};
  std::thread resetter([&] {
    while (!is_over) {
      const Result<ResetReport> report =
          resets % 2 == 0 ? manager.reset_all() : manager.invalidate(manager.weights_generation() + 1);
      wrong += report ? 0 : 1;
      ++resets;
      (void)load_and_wait(manager, chain(resets % 11, 6));  // so that other threads run
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
  is_over = true;
  resetter.join();
  EXPECT_EQ(wrong, 0);
  ASSERT_TRUE(manager.reset_all());
  EXPECT_TRUE(manager.drain(seconds(60)).has_value());
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    const PoolCounts counts = manager.pool(level)->counts();
    EXPECT_EQ(counts.free, counts.total) << to_string(level);
    manager.pool(level)->check_invariants();
  }
}

}  // namespace
}  // namespace cairn::testing
