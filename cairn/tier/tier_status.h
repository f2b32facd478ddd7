// Plain values that users of a manager see of tiers and links: options and status.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cairn/base/clock.h"

namespace cairn {

struct TierHealthOptions {
  std::uint32_t failures = 3;  // in a row
  Duration first_wait = std::chrono::seconds(1);
  Duration longest_wait = std::chrono::minutes(1);
};

struct TierHealthReport {
  bool is_up = true;
  std::uint64_t failures = 0;   // since it was made
  std::uint64_t times_out = 0;  // how often it was taken out of use
  std::optional<TimePoint> out_since = {};
  std::optional<TimePoint> next_trial = {};
  std::string reason = {};  // of the last failure
};

// What make() found in the file: how many entries, and how many were damaged or superseded.
struct TierRecovered {
  std::uint32_t blocks = 0;
  std::uint32_t damaged = 0;
  std::uint32_t cut_off = 0;  // entries whose blocks the file no longer had
  std::uint32_t superseded = 0;
  bool clean = true;        // the file was closed
  bool is_reserved = true;  // the file's space; false if the file system cannot reserve any
  std::string damage = {};  // what was wrong with the file itself, and what became of it; empty if all was well
};

struct LinkTotals {
  std::uint64_t copies = 0;
  std::uint64_t blocks = 0;  // that arrived
  std::uint64_t bytes = 0;   // of those
  std::uint64_t failed = 0;  // blocks
  std::uint64_t mismatched = 0;
  std::uint64_t expired = 0;
  std::uint64_t cancelled = 0;
  Duration busy = Duration::zero();  // while at least one transfer was in flight
  std::uint64_t blocks_in_flight = 0;
  std::uint64_t bytes_in_flight = 0;
  std::uint64_t quarantined = 0;  // blocks that a late copy may still touch
  std::uint64_t unsettled = 0;    // transfers that may still touch memory, in flight or late
};

struct ScrubStatus {
  std::uint64_t bytes = 0;       // that were read
  std::uint64_t blocks = 0;      // that were read and verified
  std::uint64_t damaged = 0;     // that were wrong, and are dropped
  std::uint64_t unreadable = 0;  // that could not be read
  std::uint64_t passes = 0;      // over the whole tier
  std::uint32_t position = 0;    // the next block of the present pass
};

enum class DiskOpening : std::uint8_t {
  kReuse,     // opens the file and serves its blocks; creates it if it does not exist
  kExisting,  // fails if the file does not exist
  kFresh,     // an existing one is replaced, if it is a file of a disk tier and not open
};

}  // namespace cairn
