// reset_process PATH GENERATION WHAT: a process with a disk tier that stores blocks, resets while copies are in flight,
// and kills itself as soon as the reset has returned. WHAT is "reset", "invalidate" (to GENERATION + 1), or "none",
// which kills itself without a reset. With "reset-late" and "invalidate-late" the copies in flight may end first.
// Prints how many blocks were on the disk and how many were in flight before it kills itself.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cairn/manager/kv_block_manager.h"

namespace {

using namespace cairn;  // NOLINT(google-build-using-namespace): a program

constexpr std::uint32_t kBlocks = 4096;

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(2);
}

ManagerConfig config_of(const std::string& path, std::uint64_t generation) {
  ManagerConfig config;
  config.block_size = 4;
  config.model = {.name = "killed", .layers = 4, .heads = 2, .head_size = 64, .element_type = "f16"};
  config.model.weights_generation = generation;
  config.device.blocks = kBlocks;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = kBlocks;
  config.disk.blocks = kBlocks;
  config.disk.path = path;
  config.disk.direct = false;
  config.offload_to_host.mode = OffloadMode::kOnRegistration;
  config.offload_to_disk.mode = OffloadMode::kOnRegistration;
  return config;
}

void store(const KvBlockManager& manager, std::uint64_t name) {
  std::vector<BlockKey> keys;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const BlockHash block{(name + 1) * 0x9E3779B97F4A7C15U + i};
    keys.push_back(keys.empty() ? *BlockKey::root(sequence_hash_of_root(block)) : *keys.back().extend(block));
  }
  if (Result<MutableBlocks> blocks = manager.device()->allocate(16)) {
    (void)(*(*std::move(blocks)).complete({.keys = keys})).register_blocks();
  }
}

bool is_copying(const KvBlockManager& manager) {
  return std::ranges::any_of(manager.status().offload,
                             [](const OffloadStatus& offload) { return offload.in_flight > 0; });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    stop("reset_process PATH GENERATION WHAT");
  }
  const std::uint64_t generation = std::strtoull(argv[2], nullptr, 10);
  const std::string what = argv[3];
  Result<KvBlockManager> made = KvBlockManager::make(config_of(argv[1], generation));
  if (!made) {
    stop(made.error().message);
  }
  const KvBlockManager manager = *std::move(made);
  // Until blocks are on the disk and copies of others are in flight, which may take a while on a busy machine.
  std::uint64_t name = generation << 32;
  do {
    store(manager, name++);
  } while (manager.disk()->counts().registered < 256 || !is_copying(manager));
  const std::uint32_t stored = manager.disk()->counts().registered;
  Result<ResetReport> report = ResetReport();
  if (what.starts_with("reset")) {
    report = manager.reset_all();
  } else if (what.starts_with("invalidate")) {
    report = manager.invalidate(generation + 1);
  }
  if (!report) {
    stop(report.error().message);
  }
  if (what.ends_with("-late")) {
    (void)manager.drain(std::chrono::seconds(10));
  }
  const std::string line = std::to_string(stored) + " " + std::to_string(report->copies) + "\n";
  (void)!write(STDOUT_FILENO, line.data(), line.size());
  kill(getpid(), SIGKILL);
}
