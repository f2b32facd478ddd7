// host.size and disk.size are what all ranks of an engine use together, on any grid of ranks and with any number of K/V heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/memory/memory_testing.h"

namespace cairn {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kHostSize =
    256 * kMiB;  // threads and executors of many ranks in one process take 2 MiB of their own
constexpr std::uint64_t kDiskSize = 64 * kMiB;
constexpr std::uint32_t kDeviceBlocks = 4;

struct Engine {
  RankGrid ranks = 1;
  std::uint32_t heads = 8;
  std::uint32_t kv = 2;
};
void PrintTo(const Engine& engine, std::ostream* out) {
  *out << engine.ranks.to_string() << ", " << engine.heads << " heads, kv " << engine.kv;
}

// Pages of this process that no file backs.
std::uint64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) {
      return std::stoull(line.substr(8)) * 1024;
    }
  }
  ADD_FAILURE() << "the system does not say";
  return 0;
}

// Pages of shared memory that this process maps, each counted once.
std::uint64_t shared_bytes() {
  std::map<std::string, std::uint64_t> by_inode;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:cairn") == std::string::npos) {
      continue;
    }
    std::istringstream words(line);
    std::string range;
    std::string inode;
    std::string unused;
    words >> range >> unused >> unused >> unused >> inode;
    const std::size_t dash = range.find('-');
    const std::uint64_t bytes =
        std::stoull(range.substr(dash + 1), nullptr, 16) - std::stoull(range.substr(0, dash), nullptr, 16);
    by_inode[inode] = std::max(by_inode[inode], bytes);
  }
  std::uint64_t bytes = 0;
  for (const auto& [inode, size] : by_inode) {
    bytes += size;
  }
  return bytes;
}

// Room on the disk, not length: nothing hides in holes.
std::uint64_t file_bytes(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat facts{};
    EXPECT_EQ(::stat(entry.path().c_str(), &facts), 0);
    bytes += static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  return bytes;
}

// The device of one rank: one tensor a layer.
struct Device {
  Device(const KvShape& shape, std::uint32_t first_layer)
      : group{.name = "all", .layers = {}, .tensors = {}, .element_bits = 16, .page_size = shape.page_size} {
    const std::uint64_t bytes = shape.block_bytes() / shape.layers * kDeviceBlocks;
    const auto head_step = static_cast<std::int64_t>(shape.head_size);
    const auto token_step = head_step * shape.heads;
    const auto block_step = token_step * shape.page_size;
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
      memory.emplace_back(bytes);
      group.layers.push_back("layer" + std::to_string(first_layer + layer));
      group.tensors.push_back(
          {.base = memory.back().data(),
           .bytes = bytes,
           .kind = MemoryKind::kSystem,
           .axes = {TensorAxis::kKv, TensorAxis::kBlock, TensorAxis::kToken, TensorAxis::kHead, TensorAxis::kElement},
           .sizes = {shape.kv, kDeviceBlocks, shape.page_size, shape.heads, shape.head_size},
           .strides = {block_step * kDeviceBlocks, block_step, token_step, head_step, 1}});
    }
  }
  std::vector<std::vector<std::byte>> memory;
  KvGroup group;
};

SchedulerConnector::Options options_of(const Engine& engine) {
  SchedulerConnector::Options options;
  options.manager.block_size = 16;
  options.manager.model = {
      .name = "sizes", .layers = 7, .kv = engine.kv, .heads = engine.heads, .head_size = 128, .element_type = "f16"};
  options.manager.device.blocks = kDeviceBlocks;
  options.manager.device.memory = DeviceMemory::kSystem;
  options.manager.host.size = kHostSize;
  options.ranks.ranks = engine.ranks;
  return options;
}

class RankSizesTest : public ::testing::TestWithParam<Engine> {};

TEST_P(RankSizesTest, AllRanksTogetherUseTheConfiguredSizes) {
  const Engine& engine = GetParam();
  const TestFolder folder;
  SchedulerConnector::Options options = options_of(engine);
  options.manager.disk.size = kDiskSize;
  options.manager.disk.path = folder.in("blocks");
  const KvShape whole = options.manager.shape();
  std::vector<Device> devices;
  for (std::uint32_t rank = 0; rank < engine.ranks.count(); ++rank) {
    const RankShare share = *RankShare::make(engine.ranks, rank, whole);
    devices.emplace_back(share.shape(whole), share.layers.first);
  }
  Result<std::unique_ptr<SchedulerConnector>> scheduler = SchedulerConnector::make(std::move(options));
  ASSERT_TRUE(scheduler.has_value()) << scheduler.error().message;
  const std::uint64_t anonymous_before = anonymous_bytes();
  std::vector<std::unique_ptr<WorkerConnector>> workers;
  for (std::uint32_t rank = 0; rank < engine.ranks.count(); ++rank) {
    const KvGroup& group = devices[rank].group;
    Result<std::unique_ptr<WorkerConnector>> worker = WorkerConnector::make(
        {group}, group.layers, {.rank = rank, .ranks = engine.ranks, .leader = &(*scheduler)->local_leader()});
    ASSERT_TRUE(worker.has_value()) << worker.error().message;
    workers.push_back(*std::move(worker));
  }
  ASSERT_TRUE((*scheduler)->wait_for_ranks(std::chrono::seconds(20)).has_value());
  EXPECT_NEAR(static_cast<double>(file_bytes(folder.path())), kDiskSize, 0.02 * kDiskSize);
  if (CAIRN_SANITIZED) {
    return;  // a sanitizer has memory of its own
  }
  const double host = static_cast<double>(anonymous_bytes() - anonymous_before + shared_bytes());
  EXPECT_NEAR(host, kHostSize, 0.02 * kHostSize);
}

// The number of blocks is that of MLA ranks, which share their memory; these do not.
TEST(SizesOfGroupsOfLayersTest, RanksThatWouldTakeTwiceTheSizeAreToldHowManyBlocksFit) {
  Result<std::unique_ptr<SchedulerConnector>> scheduler = SchedulerConnector::make(options_of({2, 1, 1}));
  ASSERT_TRUE(scheduler.has_value()) << scheduler.error().message;
  KvShape shape{.layers = 4, .kv = 1, .page_size = 16, .heads = 1, .head_size = 128, .element_bits = 16};
  const Device some(shape, 0);
  shape.layers = 3;
  Device others(shape, 4);
  others.group.name = "others";
  std::vector<std::string> layers = some.group.layers;
  layers.insert(layers.end(), others.group.layers.begin(), others.group.layers.end());
  const Result<std::unique_ptr<WorkerConnector>> worker = WorkerConnector::make(
      {some.group, others.group}, layers,
      {.ranks = 2, .leader = &(*scheduler)->local_leader(), .first_connection = std::chrono::seconds(1)});
  ASSERT_FALSE(worker.has_value());
  EXPECT_THAT(worker.error().message,
              ::testing::HasSubstr("because the layers are of several kinds; set host.blocks = 4681 "));
}

INSTANTIATE_TEST_SUITE_P(Grids, RankSizesTest,
                         ::testing::Values(Engine{1}, Engine{2}, Engine{4}, Engine{{1, 2}}, Engine{{2, 2}},
                                           Engine{{4, 2}}, Engine{4, 2}, Engine{{8, 2}, 4}, Engine{1, 1, 1},
                                           Engine{2, 1, 1}, Engine{4, 1, 1}, Engine{{4, 2}, 1, 1}));

}  // namespace
}  // namespace cairn
