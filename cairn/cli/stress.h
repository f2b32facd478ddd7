// `cairn stress`: runs mixed traffic on real tiers and verifies every byte that comes back. The bytes of a block are computed from
// its key. Operators use it to qualify a machine; the crash tests kill it.
//
// Threads load prefixes, fill and register the missing blocks, prefetch, offload, cancel, pause, reset and resize. The run
// stops at the first wrong byte. At its end everything must drain, and no block may still be in use or quarantined.
#pragma once

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"

namespace cairn::cli {

struct StressOptions {
  ManagerConfig config = {};  // stress_config(), or the user's
  double seconds = 10;        // of traffic; 0 to only verify the disk tier
  std::uint32_t threads = 4;
  std::uint64_t seed = 1;
  std::uint32_t sequences = 200;  // number of different sequences; some are requested more often than others
  std::uint32_t longest = 32;     // blocks of a sequence
  bool resume = false;            // open the disk tier of an earlier run, and verify all its blocks first
  double faults = 0;              // share of copied blocks that fail, are cut short, come late or hang
  bool steady = false;            // only load and register; do not reset, pause or resize
  bool json = false;
};

// A small model with 256 blocks of device memory (system memory in its place), 1,024 of host memory and 4,096 of disk.
[[nodiscard]] ManagerConfig stress_config();

struct StressStreams {
  std::ostream& out;  // the report
  std::ostream& log;
  const std::atomic<bool>& stop;   // set by Ctrl-C: ends the run with a report
  bool log_is_a_terminal = false;  // shows progress every second
};

enum class StressEnd : std::uint8_t {
  kGood,
  kWrongBytes,
  kLeaked,  // a copy did not end, or a block without holder is in use
};

// Fails if the configuration is invalid or a tier cannot be created.
[[nodiscard]] Result<StressEnd> run_stress(const StressOptions& options, const StressStreams& streams);

}  // namespace cairn::cli
