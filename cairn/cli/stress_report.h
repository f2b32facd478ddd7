// The progress and the report of `cairn stress`.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <utility>

#include "cairn/cli/stress.h"
#include "cairn/cli/stress_traffic.h"
#include "cairn/manager/kv_block_manager.h"

namespace cairn::cli {

// Prints what changed since the last line.
class StressProgress {
 public:
  StressProgress(const KvBlockManager& manager, const StressTraffic& traffic) : manager_(manager), traffic_(traffic) {}
  [[nodiscard]] std::string line(double seconds);

 private:
  const KvBlockManager& manager_;
  const StressTraffic& traffic_;
  double last_seconds_ = 0;
  std::uint64_t last_requests_ = 0;
  std::map<std::pair<CacheLevel, CacheLevel>, std::uint64_t> last_bytes_;
};

struct StressReport {
  const StressOptions& options;
  StressTraffic::DiskCheck recovered;
  double seconds = 0;
  bool drained = true;                     // all copies ended
  std::uint64_t leaked = 0;                // blocks still in use or quarantined
  std::uint64_t resident_bytes_early = 0;  // memory of the process, after a tenth of the time
  std::uint64_t resident_bytes = 0;        // the same at the end
  std::string wrong = {};                  // the first wrong block; empty if there is none
};

// Resident memory of this process.
[[nodiscard]] std::uint64_t resident_bytes();

// Writes a table, or one JSON object if the options say so.
void write_stress_report(const StressReport& report, const KvBlockManager& manager, const StressCounts& counts,
                         std::ostream& out);

}  // namespace cairn::cli
