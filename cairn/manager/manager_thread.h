// ManagerThread: moves the blocks of a manager along: pumps its tiers when they have something to do.
//
// Without a thread of its own (ManagerParts::own_thread), the caller pumps.
//
// Thread safety: any thread may call; wake() also under a pool's lock.
// Ownership:     outlives the tiers, which call wake().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <thread>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/manager/manager_tiers.h"

namespace cairn {

class ManagerThread {
 public:
  explicit ManagerThread(const Clock& clock) : clock_(clock) {}
  ManagerThread(const ManagerThread&) = delete;
  ManagerThread& operator=(const ManagerThread&) = delete;
  ~ManagerThread() { stop(); }

  void start(ManagerTiers& tiers);
  // There is something to pump.
  void wake();
  // Waits until nothing waits or is in flight and no late copy may touch memory any more. kExpired at the end of `longest`;
  // kUnavailable if there is no thread and nothing can be pumped before the clock moves.
  [[nodiscard]] Status drain(ManagerTiers& tiers, Duration longest);
  void stop();

 private:
  void run(ManagerTiers& tiers);
  // Must be equal before and after a check of all tiers, because the check is not atomic and work moves from tier to
  // tier. std::nullopt while a copy is unsettled, or the thread is awake: it holds blocks while it decides.
  struct Rest {
    std::uint64_t sleeps = 0;
    std::uint64_t copies = 0;
    bool operator==(const Rest&) const = default;
  };
  [[nodiscard]] std::optional<Rest> rest(const ManagerTiers& tiers);

  const Clock& clock_;
  Mutex mutex_{LockRank::kWake};
  std::condition_variable_any woken_up_;
  std::condition_variable_any went_to_sleep_;
  std::atomic<bool> woken_{false};
  bool ending_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_asleep_ CAIRN_GUARDED_BY(mutex_) = false;
  std::uint64_t sleeps_ CAIRN_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

}  // namespace cairn
