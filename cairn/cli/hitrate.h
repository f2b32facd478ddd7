// `cairn hitrate`: the hit rate of each policy on a trace, for caches of several sizes.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/cli/engine_profiles.h"
#include "cairn/lab/block_trace.h"

namespace cairn::cli {

struct HitrateOptions {
  std::vector<std::string> traces;
  std::vector<std::string> policies = {"all"};
  // "4096" blocks, "64GB", or "5%" of the distinct blocks of a trace
  std::vector<std::string> capacities = {"1%", "2%", "5%", "10%", "20%"};
  std::vector<std::string> tiers = {};  // capacities of the lower tiers
  std::string admit = "likely";         // which blocks lower tiers admit: lab::parse_admit
  bool hints = false;
  bool leaves_first = false;
  bool endings = false;
  bool bypass = false;
  std::uint32_t block_size = lab::kTraceBlockSize;  // tokens per id of a trace
  std::uint64_t kv_bytes = kDefaultKvBytes;         // per token: converts blocks to bytes
  std::string json = {};                            // file for the rows; "-" for `out`, instead of the table
  std::string html = {};                            // file for a page with the curves
  std::string command = {};                         // the command line, shown on the page
};

struct HitrateStreams {
  std::ostream& out;               // tables
  std::ostream& log;               // invalid rows of a trace, and progress
  bool log_is_a_terminal = false;  // progress is shown only on a terminal
};

// Fails if an option is invalid, or a file cannot be read or written.
[[nodiscard]] Status run_hitrate(const HitrateOptions& options, const HitrateStreams& streams);

}  // namespace cairn::cli
