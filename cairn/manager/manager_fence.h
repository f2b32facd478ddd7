// ManagerFence: resets of a manager's tiers. A reset is a fence: once it returns, nothing that was stored before is found.
//
// While the fences of the pools are up, nothing is found and nothing is registered for others to find. Every copy takes its
// blocks from pools. So a copy either began before the fence, and its targets are of before, or it begins afterwards, and its
// sources are. What waits for a copy without being in a pool (blocks of the engine, claimed victims, loads) is dropped by its
// owner before the fences are lowered. So nothing of before is registered afterwards.
//
// Thread safety: any thread may call; one reset runs at a time.
// Errors:        as KvBlockManager::reset() says.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/manager/manager_tiers.h"
#include "cairn/manager/reset_channel.h"

namespace cairn {

class ManagerFence {
 public:
  ManagerFence(const ManagerConfig& config, ManagerTiers& tiers, ResetChannel& resets);

  [[nodiscard]] Result<ResetReport> reset(CacheLevel level) CAIRN_EXCLUDES(mutex_);
  // For new weights, if a generation is given.
  [[nodiscard]] Result<ResetReport> reset_all(std::optional<std::uint64_t> weights_generation) CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t weights_generation() const { return weights_generation_; }
  // How often reset_all() was called.
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  struct Fence {
    std::vector<CacheLevel> levels = {};
    bool is_of_all = false;  // over the registry and loads too
    std::optional<Tier::NewWeights> weights = {};
  };
  // `tell`: reports the loads that ended; to be called without the lock.
  [[nodiscard]] Result<ResetReport> raise(const Fence& fence, std::function<void()>& tell) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t in_flight_into(CacheLevel level) const;

  const ManagerConfig& config_;
  ManagerTiers& tiers_;
  ResetChannel& resets_;
  Mutex mutex_{LockRank::kManager};
  // Both are written with mutex_ held; they order nothing.
  std::atomic<std::uint64_t> weights_generation_;
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace cairn
