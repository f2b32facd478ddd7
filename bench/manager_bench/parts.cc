#include "bench/manager_bench/parts.h"

#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "cairn/transfer/cuda_executor.h"
#include "cairn/transfer/host_executor.h"

namespace cairn::bench {

Keys chain(std::uint64_t name, std::uint32_t count) {
  Keys keys;
  keys.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const BlockHash block{(name + 1) * 0x9E3779B97F4A7C15U + i};
    keys.push_back(i > 0 ? *keys.back().extend(block) : *BlockKey::root(sequence_hash_of_root(block)));
  }
  return keys;
}

ManagerConfig large_blocks() {
  ManagerConfig config;
  config.event_log = 0;
  config.model = {.name = "bench", .layers = 32, .heads = 8, .head_size = 128};
  config.offload_to_host.mode = OffloadMode::kOff;
  config.offload_to_disk.mode = OffloadMode::kOff;
  config.offload_to_host.deadline = config.offload_to_disk.deadline = config.onboard.deadline =
      std::chrono::seconds(120);
  return config;
}

ManagerConfig small_blocks() {
  ManagerConfig config = large_blocks();
  config.model = {.name = "bench", .layers = 1, .kv = 1, .heads = 1, .head_size = 8};
  return config;
}

void add_device(ManagerConfig& config, const Settings& settings, std::uint32_t blocks) {
  config.device.blocks = blocks;
  config.device.memory = settings.gpu ? DeviceMemory::kGpu : DeviceMemory::kSystem;
  config.device.gpu = settings.device;
  config.device.layout = Arrangement::kLayersKvNhd;
}

void cache(BlockPool& pool, const Keys& keys) {
  MutableBlocks blocks = must(pool.allocate(static_cast<std::uint32_t>(keys.size())));
  auto complete = std::move(blocks).complete({.keys = keys});
  if (!complete) {
    stop(complete.error().error.to_string());
  }
  auto registered = (*std::move(complete)).register_blocks();
  if (!registered) {
    stop(registered.error().error.to_string());
  }
}

std::unique_ptr<TransferExecutor> bare_executor(const Settings& settings) {
  if (settings.gpu) {
    return must(CudaExecutor::create({.device = settings.device}));
  }
  return std::make_unique<HostExecutor>(steady_clock(), HostExecutor::Options{});
}

double bare_copy(TransferExecutor& executor, const BlockLayoutPtr& from, const BlockLayoutPtr& to,
                 std::uint32_t count) {
  Transfer transfer{.plan = must(CopyPlan::make(from, to)), .verify = Verify::kMake};
  for (std::uint32_t i = 0; i < count; ++i) {
    transfer.blocks.push_back({.pair = {i, i}, .tag = {i, 1}});
  }
  std::promise<std::string> done;
  transfer.done = [&done](TransferOutcome&& outcome) { done.set_value(outcome.error); };
  const double start = seconds_now();
  must(executor.submit(std::move(transfer)));
  const std::string error = done.get_future().get();
  const double took = seconds_now() - start;
  if (!error.empty()) {
    stop(error);
  }
  return took;
}

double offload_all(const KvBlockManager& manager, CacheLevel into, const Keys& keys) {
  std::promise<std::string> done;
  const double start = seconds_now();
  must(manager.offload(into,
                       {.keys = keys, .done = [&done](OffloadOutcome&& outcome) { done.set_value(outcome.error); }}));
  const std::string error = done.get_future().get();
  const double took = seconds_now() - start;
  if (!error.empty()) {
    stop(error);
  }
  return took;
}

void clear(const KvBlockManager& manager, CacheLevel level) {
  const double start = seconds_now();
  must(manager.reset(level));
  while (manager.pool(level)->counts().active > 0) {
    if (seconds_now() - start > 10) {
      stop(std::string("blocks of ") + to_string(level) + " are still in use");
    }
    std::this_thread::yield();
  }
}

ScratchFile::ScratchFile(std::string path) : path_(std::move(path)) {
  if (::access(path_.c_str(), F_OK) == 0) {
    stop(path_ + " exists and would be overwritten; remove it, or give another path with --file");
  }
}

ScratchFile::~ScratchFile() { ::unlink(path_.c_str()); }

}  // namespace cairn::bench
