// ResetChannel: tells whoever follows it which tiers of a manager were reset.
//
// Does:     every receiver sees every reset that comes after it was made, oldest first; the last kKept of them are kept
//           for those who are late, and a receiver knows how many it missed.
// Owner:    shared by the manager and its receivers; either may go first.
// Threads:  any; a receiver belongs to one thread at a time.
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
  // The next one; none: nothing new.
  [[nodiscard]] std::optional<CacheLevel> try_next();
  // How many it came too late for.
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
