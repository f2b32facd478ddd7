// ResetChannel: tells its receivers which tiers of a manager were reset.
//
// A receiver sees every reset that comes after it was made, oldest first. The last kKept resets are kept for slow receivers;
// a receiver knows how many it missed.
//
// Thread safety: any thread may call; a receiver belongs to one thread at a time.
// Ownership:     shared by the manager and its receivers; either may be destroyed first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn {

class ResetChannel : public std::enable_shared_from_this<ResetChannel> {
 public:
  static constexpr std::size_t kKept = 64;

  void send(CacheLevel level);
  [[nodiscard]] ResetReceiver subscribe();

 private:
  friend class ResetReceiver;
  mutable Mutex mutex_{LockRank::kHealth};
  std::deque<CacheLevel> kept_ CAIRN_GUARDED_BY(mutex_);
  std::uint64_t sent_ CAIRN_GUARDED_BY(mutex_) = 0;
};

}  // namespace cairn
