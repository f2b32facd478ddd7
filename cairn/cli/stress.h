// `cairn stress`: mixed traffic on real tiers, with contents that follow from their keys: everything that is read is
// verified. Operators qualify a machine with it; the crash tests kill it.
//
// Does:     threads load prefixes, fill and register what is missing, prefetch, offload, cancel, pause, reset and resize,
//           while one line a second says how it goes; a report at the end. Stops at the first wrong byte.
// Leaks:    when the traffic is over everything has to drain, and no block may be in use or quarantined any more.
// Resume:   opens the disk tier that is there and verifies every block in it before anything else.
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
  ManagerConfig config = {};  // as stress_config() has it, or the user's
  double seconds = 10;        // of traffic; 0: none, what resume does is all
  std::uint32_t threads = 4;
  std::uint64_t seed = 1;
  std::uint32_t sequences = 200;  // distinct ones that are asked for, some more often than others
  std::uint32_t longest = 32;     // blocks of a sequence
  bool resume = false;
  double faults = 0;    // share of copied blocks that fail, come short, late or hang
  bool steady = false;  // only loads and registrations: nothing is reset, paused or resized
  bool json = false;
};

// A small model, 256 blocks of device memory (pages of this process), 1,024 of host memory and 4,096 of disk.
[[nodiscard]] ManagerConfig stress_config();

struct StressStreams {
  std::ostream& out;  // the report
  std::ostream& log;
  const std::atomic<bool>& stop;   // set by Ctrl-C: the report comes at once
  bool log_is_a_terminal = false;  // only there: a line a second
};

enum class StressEnd : std::uint8_t {
  kGood,
  kWrongBytes,
  kLeaked,  // something did not end, or blocks are in use that nobody has
};

// Fails on a configuration that makes no sense, or tiers that are not to be had.
[[nodiscard]] Result<StressEnd> run_stress(const StressOptions& options, const StressStreams& streams);

}  // namespace cairn::cli
