#include "cairn/tier/link_meter.h"

#include <algorithm>

namespace cairn {

namespace {

// Of a new measurement against those before.
constexpr double kWeight = 0.2;

}  // namespace

void LinkMeter::began(std::uint64_t blocks, std::uint64_t bytes, TimePoint now) {
  const MutexLock lock(mutex_);
  if (transfers_in_flight_++ == 0) {
    busy_since_ = now;
  }
  ++totals_.copies;
  ++totals_.unsettled;
  totals_.blocks_in_flight += blocks;
  totals_.bytes_in_flight += bytes;
}

void LinkMeter::leave(std::uint64_t blocks, std::uint64_t bytes, TimePoint now) {
  totals_.blocks_in_flight -= blocks;
  totals_.bytes_in_flight -= bytes;
  if (--transfers_in_flight_ == 0) {
    totals_.busy += now - busy_since_;
  }
}

void LinkMeter::refused(std::uint64_t blocks, std::uint64_t bytes, TimePoint now) {
  const MutexLock lock(mutex_);
  --totals_.copies;
  --totals_.unsettled;
  leave(blocks, bytes, now);
}

void LinkMeter::ended(const Counts& counts, std::uint64_t blocks, std::uint64_t block_bytes, TimePoint began,
                      TimePoint now) {
  if (seconds_ != nullptr && counts.done > 0) {
    seconds_->record(now - began);
  }
  const MutexLock lock(mutex_);
  totals_.blocks += counts.done;
  totals_.bytes += counts.done * block_bytes;
  totals_.failed += counts.failed;
  totals_.mismatched += counts.mismatched;
  totals_.expired += counts.expired;
  totals_.cancelled += counts.cancelled;
  leave(blocks, blocks * block_bytes, now);
  if (counts.done + counts.failed + counts.mismatched == 0) {
    return;  // it may have waited all the time
  }
  // Copies wait for one another: what this one took is the time since the one before it ended.
  const Duration took = now - std::max(began, last_end_);
  last_end_ = now;
  if (counts.done == 0 || took <= Duration::zero()) {
    return;
  }
  const double rate = static_cast<double>(counts.done * block_bytes) * 1e9 / static_cast<double>(took.count());
  bytes_per_second_ = bytes_per_second_ == 0 ? rate : bytes_per_second_ + kWeight * (rate - bytes_per_second_);
}

void LinkMeter::quarantined(std::int64_t blocks) {
  const MutexLock lock(mutex_);
  totals_.quarantined += static_cast<std::uint64_t>(blocks);
}

void LinkMeter::settled() {
  const MutexLock lock(mutex_);
  --totals_.unsettled;
}

LinkTotals LinkMeter::totals() const {
  const MutexLock lock(mutex_);
  return totals_;
}

double LinkMeter::bytes_per_second() const {
  const MutexLock lock(mutex_);
  return bytes_per_second_;
}

Duration LinkMeter::time_for(std::uint64_t bytes) const {
  const MutexLock lock(mutex_);
  if (bytes_per_second_ == 0) {
    return Duration::zero();
  }
  return Duration(
      static_cast<Duration::rep>(static_cast<double>(totals_.bytes_in_flight + bytes) * 1e9 / bytes_per_second_));
}

}  // namespace cairn
