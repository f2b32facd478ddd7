#include "cairn/tier/link_meter.h"

#include <algorithm>
#include <cmath>

namespace cairn {

namespace {

// What the measurements before weigh beside a new one. They weigh less the longer ago they were made.
constexpr double kKept = 0.8;
constexpr double kHalfLife = 60;         // seconds
constexpr double kOneMeasurement = 0.1;  // seconds of a link that is always busy

}  // namespace

void LinkMeter::began(const Submitted& transfer) {
  const std::uint64_t bytes = transfer.blocks * transfer.block_bytes;
  const MutexLock lock(mutex_);
  if (transfers_in_flight_++ == 0) {
    busy_since_ = transfer.at;
  }
  ++totals_.copies;
  ++totals_.unsettled;
  totals_.blocks_in_flight += transfer.blocks;
  totals_.bytes_in_flight += bytes;
  if (!transfer.may_be_held) {
    unheld_.since = unheld_.transfers++ == 0 ? transfer.at : unheld_.since;
    unheld_.bytes += bytes;
  }
}

void LinkMeter::leave(const Submitted& transfer, TimePoint now) {
  const std::uint64_t bytes = transfer.blocks * transfer.block_bytes;
  totals_.blocks_in_flight -= transfer.blocks;
  totals_.bytes_in_flight -= bytes;
  if (--transfers_in_flight_ == 0) {
    totals_.busy += now - busy_since_;
  }
  if (!transfer.may_be_held) {
    --unheld_.transfers;
    unheld_.bytes -= bytes;
  }
}

void LinkMeter::refused(const Submitted& transfer, TimePoint now) {
  const MutexLock lock(mutex_);
  --totals_.copies;
  --totals_.unsettled;
  leave(transfer, now);
}

void LinkMeter::ended(const Submitted& transfer, const Counts& counts, std::optional<Duration> copied, TimePoint now) {
  const TimePoint began = std::max(transfer.at, copied ? now - *copied : transfer.at);
  if (seconds_ != nullptr && counts.done > 0) {
    seconds_->record(now - began);
  }
  const MutexLock lock(mutex_);
  totals_.blocks += counts.done;
  totals_.bytes += counts.done * transfer.block_bytes;
  totals_.failed += counts.failed;
  totals_.mismatched += counts.mismatched;
  totals_.expired += counts.expired;
  totals_.cancelled += counts.cancelled + counts.gone;
  leave(transfer, now);
  if (counts.done + counts.failed + counts.mismatched == 0) {
    return;  // it may have waited all the time
  }
  // Copies wait for one another: what this one took is the time since the one before it ended.
  const Duration took = now - std::max(began, last_end_);
  last_end_ = now;
  if (counts.done == 0) {
    return;
  }
  const double age = std::chrono::duration<double>(now - measured_at_).count();
  before_.bytes *= std::exp2(-age / kHalfLife);
  before_.seconds *= std::exp2(-age / kHalfLife);
  measured_at_ = now;
  now_.bytes += static_cast<double>(counts.done * transfer.block_bytes);
  now_.seconds += std::chrono::duration<double>(std::max(took, Duration(1))).count();
  if (transfers_in_flight_ == 0 || now_.seconds >= kOneMeasurement) {
    before_ = recently();
    now_ = {};
  }
}

LinkMeter::Carried LinkMeter::recently() const {
  return now_.seconds > 0 ? Carried{kKept * before_.bytes + now_.bytes, kKept * before_.seconds + now_.seconds}
                          : before_;
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
  const Carried carried = recently();
  return carried.seconds > 0 ? carried.bytes / carried.seconds : 0;
}

LinkMeter::Estimate LinkMeter::estimate(TimePoint now) const {
  const MutexLock lock(mutex_);
  Estimate estimate{.bytes_in_flight = totals_.bytes_in_flight};
  const Carried carried = recently();
  if (carried.seconds <= 0) {
    return estimate;
  }
  estimate.bytes_per_second = carried.bytes / carried.seconds;
  estimate.age = now - measured_at_;
  if (unheld_.transfers > 0) {
    // If nothing ends for longer than all that is in flight should take, the link has become slower.
    const double waited = std::chrono::duration<double>(now - std::max(unheld_.since, last_end_)).count();
    const double overdue = waited - static_cast<double>(unheld_.bytes) / estimate.bytes_per_second;
    estimate.bytes_per_second = carried.bytes / (carried.seconds + std::max(overdue, 0.0));
  }
  return estimate;
}

}  // namespace cairn
