// Shared by the tests of the manager: a small model, blocks with contents, managers in virtual time.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/layout/block_pattern.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/pool/pool_testing.h"
#include "cairn/transfer/simulated_executor_testing.h"

namespace cairn::testing {

// The reference manager of the seed: 3 layers, pages of 4 tokens, 8 device, 16 host and 16 disk blocks, write-through.
inline ManagerConfig reference_config(const std::string& disk_path, std::uint32_t device = 8, std::uint32_t host = 16,
                                      std::uint32_t disk = 16) {
  ManagerConfig config;
  config.worker_id = 1337;
  config.block_size = kBlockSize;
  config.model = {.name = "reference", .layers = 3, .heads = 2, .head_size = 8, .element_type = "f16"};
  config.device.blocks = device;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = host;
  config.disk.blocks = disk;
  if (disk > 0) {
    config.disk.path = disk_path;
    config.disk.direct = false;  // as simulated copies need it
  }
  config.offload_to_host.mode = OffloadMode::kOnRegistration;
  config.offload_to_disk.mode = OffloadMode::kOnRegistration;
  return config;
}

inline std::uint64_t seed_of(const BlockKey& key) { return key.high_word() * 31 + key.low_word(); }

// Allocates device blocks, fills them with the bytes of their keys, and registers them.
inline ImmutableBlocks compute(const KvBlockManager& manager, const Keys& keys, const Retention& retention = {}) {
  MutableBlocks blocks = *manager.device()->allocate(static_cast<std::uint32_t>(keys.size()));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    write_pattern(*manager.layout(CacheLevel::kG1), index_of(blocks.block_ids()[i]), seed_of(keys[i]));
  }
  return *(*std::move(blocks).complete({.keys = keys})).register_blocks(retention);
}

// The same, and releases them.
inline void cache_on_device(const KvBlockManager& manager, const Keys& keys) {
  const ImmutableBlocks dropped = compute(manager, keys);
}

inline Result<LoadOutcome> load_and_wait(const KvBlockManager& manager, const Keys& keys) {
  OutcomeWaiter<LoadOutcome> waiter(manager);
  CAIRN_TRY(manager.load({.keys = keys, .done = waiter.done()}));
  return waiter.wait();
}

// Whether every block has the bytes of its key, in memory.
inline ::testing::AssertionResult hold_their_bytes(const KvBlockManager& manager, const ImmutableBlocks& blocks) {
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    const BlockLayoutPtr layout = manager.layout(*blocks.tier());
    if (const auto row = find_stranger(*layout, index_of(blocks.block_ids()[i]), seed_of(blocks.key(i)))) {
      return ::testing::AssertionFailure() << "block " << i << ", row " << *row << " has other bytes";
    }
  }
  return ::testing::AssertionSuccess();
}

// A manager that only advance() and settle() drive: its executors copy in virtual time.
class VirtualManager {
 public:
  explicit VirtualManager(const ManagerConfig& config, SimulatedExecutor::Options speed = {}, ManagerParts parts = {}) {
    parts.clock = &clock_;
    parts.own_thread = false;
    parts.executor = [this, speed](ExecutorKind) {
      auto made = std::make_unique<SimulatedExecutor>(clock_, speed);
      executors_.push_back(made.get());
      return made;
    };
    Result<KvBlockManager> made = KvBlockManager::make(config, parts);
    CAIRN_CHECK(made.has_value(), made.has_value() ? "" : made.error().message);
    manager_.emplace(*std::move(made));
  }

  [[nodiscard]] const KvBlockManager& operator*() const { return *manager_; }
  [[nodiscard]] const KvBlockManager* operator->() const { return &*manager_; }
  [[nodiscard]] const Clock& clock() const { return clock_; }

  // Runs everything that is due now.
  void settle() {
    for (bool more = true; more;) {
      more = manager_->pump();
      for (SimulatedExecutor* executor : executors_) {
        more |= executor->run();
      }
    }
  }
  // Advances the clock from event to event.
  void advance(Duration by) {
    const TimePoint end = clock_.now() + by;
    settle();
    while (clock_.now() < end) {
      clock_.advance(std::min(end, next_time(end)) - clock_.now());
      settle();
    }
  }

 private:
  [[nodiscard]] TimePoint next_time(TimePoint end) const {
    TimePoint next = std::min(end, manager_->next_time().value_or(end));
    for (const SimulatedExecutor* executor : executors_) {
      next = std::min(next, executor->next_time().value_or(end));
    }
    return std::max(next, clock_.now() + Duration(1));
  }

  ManualClock clock_;
  std::vector<SimulatedExecutor*> executors_;  // the manager's
  std::optional<KvBlockManager> manager_;
};

}  // namespace cairn::testing
