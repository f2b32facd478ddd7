// A replay finds the same blocks in the same tiers as a real manager with real bytes, files and threads, if timing cannot
// matter: one request at a time, everything is copied down before the next, and everything is loaded.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "cairn/layout/block_pattern.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/sim/list_source_testing.h"
#include "cairn/sim/prompt.h"
#include "cairn/sim/replay.h"

namespace cairn {
namespace {

constexpr std::uint32_t kBlockSize = 4;
constexpr std::uint32_t kDeviceBlocks = 64;

// Tokens of prompts by where they were found.
using Found = std::array<std::uint64_t, kCacheLevels>;

ManagerConfig config_of(std::uint32_t host_blocks, std::uint32_t disk_blocks) {
  ManagerConfig config;
  config.block_size = kBlockSize;
  config.model = {.name = "small", .layers = 2, .heads = 1, .head_size = 8, .element_type = "int8"};
  config.device.blocks = kDeviceBlocks;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = host_blocks;
  config.host.pinning = Pinning::kOff;
  config.disk.blocks = disk_blocks;
  config.disk.direct = false;
  // The default policy asks how long ago blocks were used; the real manager serves in milliseconds what takes hours here.
  config.device.policy = config.host.policy = config.disk.policy = PolicyKind::kLineageTick;
  config.offload_to_host.mode = config.offload_to_disk.mode = OffloadMode::kOnRegistration;
  config.onboard.weigh = false;
  config.onboard.deadline = std::chrono::minutes(1);
  return config;
}

// Sessions whose prompts grow; sessions are chosen at random, the latest ones more often.
std::vector<sim::ReplayRequest> sessions(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<sim::TokenRun>> open;
  std::vector<sim::ReplayRequest> requests;
  for (std::uint32_t i = 0; i < 400; ++i) {
    if (open.size() < 40 && random() % 4 == 0) {
      open.push_back({{1, 4 * kBlockSize}});  // a prefix that all share
    }
    if (open.empty()) {
      continue;
    }
    std::vector<sim::TokenRun>& session = open[open.size() - 1 - random() % open.size() * (random() % 3) / 2];
    session.push_back({static_cast<Token>(100 + i), static_cast<std::uint32_t>((1 + random() % 3) * kBlockSize)});
    std::vector<sim::TokenRun> prompt = session;
    prompt.push_back({7, 2});  // less than a block
    requests.push_back(
        {.line = i, .arrival = std::chrono::seconds(10 * i), .prompt = std::move(prompt), .output_tokens = 1});
    if (session.size() > 10) {
      session.resize(1);
    }
  }
  return requests;
}

Found replayed(const ManagerConfig& config, const std::vector<sim::ReplayRequest>& requests) {
  sim::ReplayOptions options{.engine = {.blocks = kDeviceBlocks,
                                        .block_size = kBlockSize,
                                        .eviction = config.device.policy,
                                        .leaves_first = config.device.leaves_first},
                             .manager = config};
  sim::ListSource source(requests);
  const Result<sim::Report> report = sim::run_replay(options, source);
  EXPECT_TRUE(report.has_value()) << (report ? "" : report.error().message);
  const std::uint64_t host = report->loaded_tokens[sim::below_index(CacheLevel::kG2)];
  const std::uint64_t disk = report->loaded_tokens[sim::below_index(CacheLevel::kG3)];
  return {report->counts.saved_tokens - host - disk, host, disk, 0};
}

Found served(ManagerConfig config, const std::vector<sim::ReplayRequest>& requests) {
  const TestFolder folder;
  config.disk.path = config.disk.is_there() ? folder.in("blocks") : "";
  ManagerParts parts;
  parts.seed = KeySeed::from(1);
  Result<KvBlockManager> made = KvBlockManager::make(config, parts);
  EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
  const KvBlockManager& manager = *made;
  Found found = {};
  for (const sim::ReplayRequest& request : requests) {
    const sim::Prompt prompt = *sim::Prompt::hashed(request.prompt, kBlockSize);
    OutcomeWaiter<LoadOutcome> waiter(manager);
    EXPECT_TRUE(manager.load({.keys = prompt.keys, .done = waiter.done()}).has_value());
    LoadOutcome have = *waiter.wait();
    for (std::size_t level = 0; level < found.size(); ++level) {
      found[level] += std::uint64_t{have.from[level]} * kBlockSize;
    }
    const auto missing = static_cast<std::uint32_t>(prompt.keys.size()) - have.prefix;
    MutableBlocks room = *manager.device()->allocate(missing + 1);
    MutableBlocks full = room.take_front(missing);
    const std::span<const BlockKey> rest = std::span(prompt.keys).subspan(have.prefix);
    for (std::uint32_t i = 0; i < missing; ++i) {
      write_pattern(*manager.layout(CacheLevel::kG1), index_of(full.block_ids()[i]), rest[i].low_word());
    }
    ImmutableBlocks computed;
    if (missing > 0) {
      computed = *(*std::move(full).complete({.keys = rest})).register_blocks();
    }
    EXPECT_EQ(computed.size(), missing);
    // In the order of a sequence that ends: its last blocks first.
    computed = {};
    have.blocks = {};
    EXPECT_TRUE(manager.drain(std::chrono::seconds(60)).has_value());
  }
  return found;
}

TEST(ReplayManagerThreadsTest, TiersHaveTheSameHitsAsARealManager) {
  for (const auto& [host, disk] : {std::pair{160U, 0U}, {0U, 400U}, {96U, 300U}}) {
    SCOPED_TRACE(str_cat("host ", host, ", disk ", disk));
    const ManagerConfig config = config_of(host, disk);
    const std::vector<sim::ReplayRequest> requests = sessions(host + disk);
    const Found simulated = replayed(config, requests);
    const Found real = served(config, requests);
    std::uint64_t all = 0;
    for (const sim::ReplayRequest& request : requests) {
      for (const sim::TokenRun& run : request.prompt) {
        all += run.count;
      }
    }
    for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
      const auto ours = static_cast<double>(simulated[index_of(level)]);
      const auto theirs = static_cast<double>(real[index_of(level)]);
      EXPECT_NEAR(ours, theirs, 0.01 * static_cast<double>(all)) << to_string(level);
      const bool is_there = level == CacheLevel::kG1 || (level == CacheLevel::kG2 ? host : disk) > 0;
      EXPECT_EQ(theirs > 0.02 * static_cast<double>(all), is_there) << to_string(level);
    }
  }
}

}  // namespace
}  // namespace cairn
