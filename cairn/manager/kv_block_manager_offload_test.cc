// Which blocks that leave the device the manager keeps, with the default offload settings: in virtual time, with links
// that are fast enough, too slow, or suspended for a while.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cairn/manager/manager_testing.h"

namespace cairn::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kDevice = 1'024;
constexpr std::uint32_t kHost = 8'192;

ManagerConfig default_offload(std::uint32_t device = kDevice, std::uint32_t host = kHost) {
  ManagerConfig config;
  config.block_size = kBlockSize;
  config.model = {.name = "small", .layers = 1, .heads = 1, .head_size = 4, .element_type = "f16"};
  config.device.blocks = device;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = host;
  config.event_log = 0;
  return config;
}

constexpr double kBlockBytes = 64;

// So many blocks a second.
SimulatedExecutor::Options link_of(double blocks) {
  return {.bytes_per_second = blocks * kBlockBytes, .latency = microseconds(10)};
}

double unsaved(const VirtualManager& manager, CacheLevel tier = CacheLevel::kG1) {
  for (const Metrics::Sample& sample : manager->metrics().snapshot()) {
    if (sample.name == "cairn_evicted_unsaved_total" && sample.labels == MetricLabels{{"tier", to_string(tier)}}) {
      return sample.value;
    }
  }
  ADD_FAILURE() << "there is no such figure";
  return 0;
}

// A request as an engine runs it: its blocks are allocated and registered, all at once or some at a time, and released
// at its end. While there is no room the engine retries after a step.
void run_request(VirtualManager& manager, const Keys& keys, std::size_t chunk, Duration step = Duration::zero()) {
  std::vector<ImmutableBlocks> held;
  for (std::size_t begin = 0; begin < keys.size(); begin += chunk) {
    const Keys some(keys.begin() + static_cast<std::ptrdiff_t>(begin),
                    keys.begin() + static_cast<std::ptrdiff_t>(std::min(begin + chunk, keys.size())));
    std::optional<MutableBlocks> room;
    for (int tries = 0; !room; ++tries) {
      ASSERT_LT(tries, 100) << "copies keep the engine from its blocks";
      if (Result<MutableBlocks> blocks = manager->device()->allocate(static_cast<std::uint32_t>(some.size()))) {
        room.emplace(*std::move(blocks));
      } else {
        manager.advance(microseconds(100));
      }
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      write_pattern(*manager->layout(CacheLevel::kG1), index_of(room->block_ids()[i]), seed_of(some[i]));
    }
    held.push_back(*(*(*std::move(room)).complete({.keys = some})).register_blocks());
    if (step > Duration::zero()) {
      manager.advance(step);
    }
  }
  while (!held.empty()) {
    held.pop_back();  // leaf first
  }
}

// How many blocks of each request can be loaded, from the first on.
std::uint64_t loadable(const VirtualManager& manager, const std::vector<Keys>& requests) {
  std::uint64_t sum = 0;
  for (const Keys& keys : requests) {
    sum += manager->locate(keys).blocks();
  }
  return sum;
}

void expect_loads(VirtualManager& manager, const Keys& keys) {
  std::optional<LoadOutcome> loaded;
  ASSERT_TRUE(
      manager->load({.keys = keys, .done = [&loaded](LoadOutcome&& result) { loaded.emplace(std::move(result)); }}));
  for (int i = 0; i < 1'000 && !loaded; ++i) {
    manager.advance(milliseconds(1));
  }
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->prefix, keys.size()) << loaded->why;
  EXPECT_TRUE(hold_their_bytes(*manager, loaded->blocks));
}

enum class Pace : std::uint8_t { kDrained, kBusy };

class KeepsWhatFitsTest : public ::testing::TestWithParam<std::tuple<std::size_t, std::size_t, Pace>> {};

// 4,000 blocks go through a device of 1,024 into a host tier that has room for all of them.
TEST_P(KeepsWhatFitsTest, EveryBlockCanBeLoaded) {
  const auto [size, chunk, pace] = GetParam();
  // The engine computes 2,000 blocks a second.
  VirtualManager fast(default_offload(), link_of(4'000));
  ASSERT_EQ(fast->layout(CacheLevel::kG1)->shape().block_bytes(), kBlockBytes);
  std::vector<Keys> requests;
  for (std::uint64_t name = 0; requests.size() * size < 4'000; ++name) {
    requests.push_back(chain(name, size));
    const Duration step = pace == Pace::kDrained ? Duration::zero() : microseconds(500) * std::min(size, chunk);
    ASSERT_NO_FATAL_FAILURE(run_request(fast, requests.back(), chunk, step));
    for (int i = 0; pace == Pace::kDrained && !fast->drain(Duration::zero()); ++i) {
      ASSERT_LT(i, 10'000);
      fast.advance(milliseconds(1));
    }
  }
  EXPECT_EQ(unsaved(fast), 0);
  EXPECT_EQ(loadable(fast, requests), requests.size() * size);
  EXPECT_EQ(fast->host()->stats().deduplicated, 0U) << "nothing is copied twice";
  EXPECT_EQ(fast->host()->stats().evicted, 0U);
  for (std::size_t i = 0; i < requests.size(); i += std::max<std::size_t>(1, requests.size() / 5)) {
    ASSERT_NO_FATAL_FAILURE(expect_loads(fast, requests[i]));
  }
}

std::string name_of(const ::testing::TestParamInfo<KeepsWhatFitsTest::ParamType>& each) {
  const auto [size, chunk, pace] = each.param;
  return std::to_string(size) + (chunk < size ? "InChunks" : "Whole") + (pace == Pace::kDrained ? "Drained" : "Busy");
}
constexpr Pace kPaces[] = {Pace::kDrained, Pace::kBusy};
INSTANTIATE_TEST_SUITE_P(Whole, KeepsWhatFitsTest,
                         ::testing::Combine(::testing::Values(1, 7, 64, 200, 500, 1'000), ::testing::Values(1'000),
                                            ::testing::ValuesIn(kPaces)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(InChunks, KeepsWhatFitsTest,
                         ::testing::Combine(::testing::Values(64, 200, 500, 1'000), ::testing::Values(16),
                                            ::testing::ValuesIn(kPaces)),
                         name_of);

class OverloadTest : public ::testing::TestWithParam<std::tuple<std::size_t, std::size_t>> {};

// The link carries half of what the engine computes: it is used for blocks that can be loaded, heads before tails.
TEST_P(OverloadTest, TheLinkCarriesPrefixes) {
  const auto [size, chunk] = GetParam();
  constexpr double kBlocksPerSecond = 1'000;
  VirtualManager manager(default_offload(), link_of(kBlocksPerSecond));
  std::vector<Keys> requests;
  for (std::uint64_t name = 0; requests.size() * size < 12'000; ++name) {
    requests.push_back(chain(name, size));
    ASSERT_NO_FATAL_FAILURE(run_request(manager, requests.back(), chunk, microseconds(500) * std::min(size, chunk)));
  }
  const double carried = std::chrono::duration<double>(manager.clock().now()).count() * kBlocksPerSecond;
  EXPECT_EQ(manager->host()->stats().deduplicated, 0U);
  std::uint32_t lost = 0;
  for (const Keys& keys : requests) {
    lost += static_cast<std::uint32_t>(std::ranges::count_if(keys, [&manager](const BlockKey& key) {
      return !manager->device()->contains(key) && !manager->host()->contains(key);
    }));
  }
  EXPECT_EQ(unsaved(manager), lost) << "every loss is counted";
  (void)manager->reset(CacheLevel::kG1);  // blocks on the device do not count
  EXPECT_GE(static_cast<double>(loadable(manager, requests)), 0.9 * carried) << carried << " blocks could be copied";
}

INSTANTIATE_TEST_SUITE_P(Requests, OverloadTest,
                         ::testing::Combine(::testing::Values(7, 64, 200, 500, 1'000), ::testing::Values(16, 1'000)),
                         [](const auto& each) {
                           return std::to_string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) == 16 ? "InChunks" : "Whole");
                         });

// Drains the manager in virtual time.
void drain(VirtualManager& manager) {
  for (int i = 0; i < 10'000 && !manager->drain(Duration::zero()); ++i) {
    manager.advance(milliseconds(1));
  }
  ASSERT_TRUE(manager->drain(Duration::zero()));
}

TEST(DefaultOffloadTest, AHostTierThatIsFullKeepsWhatCameLast) {
  VirtualManager manager(default_offload(256, 512), link_of(100'000));
  std::vector<Keys> requests;
  for (std::uint64_t name = 0; name < 40; ++name) {
    requests.push_back(chain(name, 64));
    ASSERT_NO_FATAL_FAILURE(run_request(manager, requests.back(), 16));
    ASSERT_NO_FATAL_FAILURE(drain(manager));
  }
  EXPECT_EQ(unsaved(manager), 0);
  EXPECT_GT(manager->host()->stats().evicted, 0U);
  EXPECT_EQ(manager->host()->stats().deduplicated, 0U);
  // The host tier holds 8 requests, and copies are made only of those that are about to leave the device.
  EXPECT_EQ(loadable(manager, {requests.end() - 8, requests.end()}), 8U * 64);
  EXPECT_GE(loadable(manager, requests), 8U * 64);
}

TEST(DefaultOffloadTest, ThroughTheHostTierToTheDisk) {
  const TestFolder folder;
  ManagerConfig config = default_offload(128, 512);
  config.disk.blocks = 4'096;
  config.disk.path = folder.in("blocks");
  config.disk.direct = false;
  VirtualManager manager(config, link_of(100'000));
  std::vector<Keys> requests;
  for (std::uint64_t name = 0; name < 40; ++name) {
    requests.push_back(chain(name, 64));
    ASSERT_NO_FATAL_FAILURE(run_request(manager, requests.back(), 1'000));
    ASSERT_NO_FATAL_FAILURE(drain(manager));
  }
  EXPECT_EQ(unsaved(manager, CacheLevel::kG1), 0);
  EXPECT_EQ(unsaved(manager, CacheLevel::kG2), 0);
  EXPECT_EQ(loadable(manager, requests), 40U * 64);
  EXPECT_GE(manager->disk()->counts().registered, 40U * 64 - 128) << "some may be only on the device";
  ASSERT_NO_FATAL_FAILURE(expect_loads(manager, requests[3]));
}

TEST(DefaultOffloadTest, ALoadIsAUseForTheTierBelowTheOneItReads) {
  const TestFolder folder;
  ManagerConfig config = default_offload(16, 64);
  config.disk.blocks = 64;
  config.disk.path = folder.in("blocks");
  config.disk.direct = false;
  config.offload_to_disk.least_uses = 2;
  VirtualManager manager(config, link_of(100'000));
  const Keys keys = chain(1, 8);
  cache_on_device(*manager, keys);
  ASSERT_NO_FATAL_FAILURE(drain(manager));
  EXPECT_EQ(manager->host()->counts().registered, 8U);
  EXPECT_EQ(manager->disk()->counts().registered, 0U) << "used once";
  (void)manager->reset(CacheLevel::kG1);
  ASSERT_NO_FATAL_FAILURE(expect_loads(manager, first_of(keys, 5)));
  ASSERT_NO_FATAL_FAILURE(drain(manager));
  EXPECT_EQ(manager->disk()->count_prefix(keys), 5U);
  EXPECT_EQ(manager->disk()->counts().registered, 5U);
}

TEST(DefaultOffloadTest, AnOffloaderThatWasPausedCatchesUp) {
  VirtualManager manager(default_offload(), link_of(100'000));
  ASSERT_TRUE(manager->pause(CacheLevel::kG1, CacheLevel::kG2));
  std::vector<Keys> requests;
  for (std::uint64_t name = 0; name < 5; ++name) {
    requests.push_back(chain(name, 200));
    ASSERT_NO_FATAL_FAILURE(run_request(manager, requests.back(), 1'000));
    manager.advance(milliseconds(1));
  }
  EXPECT_EQ(manager->host()->counts().registered, 0U);
  ASSERT_TRUE(manager->resume(CacheLevel::kG1, CacheLevel::kG2));
  ASSERT_NO_FATAL_FAILURE(drain(manager));
  EXPECT_EQ(manager->host()->counts().registered, 1'000U);
  EXPECT_EQ(unsaved(manager), 0);
}

TEST(DefaultOffloadTest, EveryLossIsCountedAndNothingElse) {
  VirtualManager manager(default_offload(16, 64), link_of(100'000));
  ASSERT_TRUE(manager->pause(CacheLevel::kG1, CacheLevel::kG2));
  cache_on_device(*manager, chain(1, 10));
  (void)manager->reset(CacheLevel::kG1);
  EXPECT_EQ(unsaved(manager), 0) << "a reset does not count as a loss";
  cache_on_device(*manager, chain(2, 10));
  cache_on_device(*manager, chain(3, 10));
  EXPECT_EQ(unsaved(manager), 4);
  (void)*manager->device()->allocate(16);
  EXPECT_EQ(unsaved(manager), 20) << "whichever call allocates";
  ASSERT_TRUE(manager->resume(CacheLevel::kG1, CacheLevel::kG2));
  cache_on_device(*manager, chain(4, 10));
  manager.advance(milliseconds(10));
  (void)*manager->device()->allocate(16);
  EXPECT_EQ(unsaved(manager), 20) << "blocks in a lower tier are not lost";
}

}  // namespace
}  // namespace cairn::testing
