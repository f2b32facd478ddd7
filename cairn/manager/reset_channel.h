// ResetChannel: tells its receivers which tiers of a manager were reset.
//
// A receiver sees every reset that comes after it was made, oldest first. The last kKept resets are kept for slow receivers;
// a receiver knows how many it missed.
//
// Thread safety: any thread may call; a receiver belongs to one thread at a time.
// Ownership:     shared by the manager and its receivers; either may be destroyed first.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "cairn/base/ids.h"
#include "cairn/base/mutex.h"

namespace cairn {

class ResetReceiver;

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

class ResetReceiver {
 public:
  // std::nullopt if there is no further reset.
  [[nodiscard]] std::optional<CacheLevel> try_next();
  // How many resets were dropped before this receiver read them.
  [[nodiscard]] std::uint64_t missed() const { return missed_; }

 private:
  friend class ResetChannel;
  ResetReceiver(std::shared_ptr<const ResetChannel> channel, std::uint64_t next)
      : channel_(std::move(channel)), next_(next) {}

  std::shared_ptr<const ResetChannel> channel_;
  std::uint64_t next_;
  std::uint64_t missed_ = 0;
};

}  // namespace cairn
