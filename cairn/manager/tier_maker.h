// TierMaker: makes the tiers of a manager from its configuration: memory, layouts, files, pools.
//
// Thread safety: one thread, while a manager is made.
// Errors:        memory or a file that cannot be had: names the tier's key and what the system said.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_config.h"
#include "cairn/tier/tier.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

class TierMaker {
 public:
  // `secret`: of the keys, as configured.
  TierMaker(const ManagerConfig& config, const ManagerParts& parts, const std::optional<KeySecret>& secret)
      : config_(config),
        parts_(parts),
        shape_(config.shape()),
        space_(config.space()),
        secret_(secret),
        disk_blocks_(count_disk_blocks()) {}

  // Callbacks and observers of a tier; they outlive it.
  struct Followers {
    std::vector<PoolObserver*> observers = {};
    std::function<void()> when_low = {};  // only used if blocks leave the tier ahead of need
    std::function<void(const TierChange&)> on_change = {};
    std::function<void(CacheLevel, std::span<const BlockKey>)> on_dropped = {};
    std::shared_ptr<ReturnModel> returns = nullptr;
    double low_water = 0;                                                          // share of its blocks
    std::function<Status(const std::optional<TierNewWeights>&)> fence_store = {};  // of the remote tier
  };
  // Requires: the configuration has the tier.
  [[nodiscard]] Result<std::unique_ptr<Tier>> device(const Followers& followers) const;
  [[nodiscard]] Result<std::unique_ptr<Tier>> host(const Followers& followers) const;
  [[nodiscard]] Result<std::unique_ptr<Tier>> disk(const Followers& followers) const;
  // What is known of a store: a pool whose blocks are nowhere in this machine.
  [[nodiscard]] Result<std::unique_ptr<Tier>> remote(const Followers& followers) const;
  // Capacity of all tiers together.
  [[nodiscard]] std::uint32_t blocks() const;
  // How many blocks of the host tier may be used at first; the tier has room for host.max_size.
  [[nodiscard]] std::uint32_t host_blocks() const;

 private:
  [[nodiscard]] Tier::Options options(CacheLevel level, const TierConfig& tier, const Followers& followers,
                                      std::uint32_t blocks) const;
  [[nodiscard]] Result<BlockLayoutPtr> device_layout() const;
  // In blocks.
  [[nodiscard]] std::uint32_t device_capacity() const;
  [[nodiscard]] std::uint32_t host_capacity() const;
  [[nodiscard]] std::uint32_t count_disk_blocks() const;
  // Bytes from one block of the host tier to the next.
  [[nodiscard]] std::uint64_t host_step() const;

  const ManagerConfig& config_;
  const ManagerParts& parts_;
  const KvShape shape_;
  const Namespace space_;
  const std::optional<KeySecret> secret_;
  const std::uint32_t disk_blocks_;
};

}  // namespace cairn
