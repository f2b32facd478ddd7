// What the ranks of an engine take together in host memory and on disk is what its configuration says, measured from outside.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "cairn/memory/memory_testing.h"
#include "examples/engine/engine_process_testing.h"
#include "examples/engine/run_testing.h"

namespace cairn::engine {
namespace {

constexpr std::uint64_t kHostSize = 128 * kMiB;
constexpr std::uint64_t kDiskSize = 64 * kMiB;

// Pages of a process that no file backs.
std::uint64_t private_bytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) {
      return std::stoull(line.substr(8)) * 1024;
    }
  }
  ADD_FAILURE() << "the system does not say";
  return 0;
}

// Pages of the shared memory that a process has open, by inode.
std::map<std::uint64_t, std::uint64_t> shared_bytes(pid_t process) {
  std::map<std::uint64_t, std::uint64_t> by_inode;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    std::error_code closed;
    struct stat facts{};
    if (std::filesystem::read_symlink(entry.path(), closed).string().starts_with("/memfd:cairn") &&
        ::stat(entry.path().c_str(), &facts) == 0) {
      by_inode[facts.st_ino] = static_cast<std::uint64_t>(facts.st_blocks) * 512;
    }
  }
  return by_inode;
}

struct Use {
  std::uint64_t memory = 0;  // private memory of all ranks, and what they share
  std::uint64_t disk = 0;    // room, not length: nothing hides in holes
};

// Of an engine that has saved its first block.
Use use_of(EngineConfig config) {
  const TestFolder folder;
  std::filesystem::create_directories(folder.in("disk"));
  config.disk = folder.in("disk/blocks");
  const EngineProcess engine(config, folder.path());
  EXPECT_TRUE(engine.wait_for_disk(1));
  const std::vector<pid_t> ranks = engine.ranks();
  EXPECT_EQ(ranks.size(), config.ranks.count());
  Use use;
  for (const pid_t rank : ranks) {
    use.memory += private_bytes(rank);
  }
  for (const auto& [inode, bytes] : shared_bytes(engine.scheduler())) {
    use.memory += bytes;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder.in("disk"))) {
    struct stat facts{};
    EXPECT_EQ(::stat(entry.path().c_str(), &facts), 0);
    use.disk += static_cast<std::uint64_t>(facts.st_blocks) * 512;
  }
  return use;
}

class SizesTest : public testing::TestWithParam<ModelAndRanks> {};

TEST_P(SizesTest, AllRanksTogetherTakeTheConfiguredSizes) {
  EngineConfig config = plain_config();
  config.model = GetParam().model;
  config.ranks = GetParam().ranks;
  config.processes = true;
  config.workload.requests = 3000;  // more than it serves before it is measured
  config.disk_size = kDiskSize;
  config.host_size = kHostSize;
  const Use all = use_of(config);
  EXPECT_NEAR(static_cast<double>(all.disk), kDiskSize, 0.02 * kDiskSize);
  if (!CAIRN_SANITIZED) {  // a sanitizer has memory of its own
    config.host_size = 0;
    config.host_blocks = 1;
    EXPECT_NEAR(static_cast<double>(all.memory - use_of(config).memory), kHostSize, 0.02 * kHostSize);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, SizesTest,
                         CAIRN_SANITIZED
                             ? testing::ValuesIn(std::vector<ModelAndRanks>{{EngineModel::kMla, 2}})
                             : testing::ValuesIn(std::vector<ModelAndRanks>{{EngineModel::kGrouped, 1},
                                                                            {EngineModel::kGrouped, 2},
                                                                            {EngineModel::kGrouped, 4},
                                                                            {EngineModel::kGrouped, {1, 2}},
                                                                            {EngineModel::kGrouped, {4, 2}},
                                                                            {EngineModel::kFewHeads, 4},
                                                                            {EngineModel::kFewHeads, {4, 2}},
                                                                            {EngineModel::kMla, 1},
                                                                            {EngineModel::kMla, 4},
                                                                            {EngineModel::kMla, {4, 2}}}));

}  // namespace
}  // namespace cairn::engine
