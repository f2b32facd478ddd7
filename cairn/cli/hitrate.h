// `cairn hitrate`: how much of a trace caches of several sizes would have served under each policy.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/lab/block_trace.h"

namespace cairn::cli {

struct HitrateOptions {
  std::vector<std::string> traces;
  std::vector<std::string> policies = {"all"};
  std::vector<std::string> capacities = {"1%", "2%", "5%", "10%", "20%"};
  std::vector<std::string> tiers = {};  // capacities of those below the first
  std::string admit = "likely";         // what they are given: lab::parse_admit
  bool hints = false;
  bool leaves_first = false;
  std::uint32_t block_size = lab::kTraceBlockSize;  // tokens that an id of a trace stands for
  std::string json = {};                            // a file for the rows; "-" is `out`, in place of the table
  std::string html = {};                            // a file for a page with the curves
  std::string command = {};                         // how the page says that it was made
};

struct HitrateStreams {
  std::ostream& out;               // tables
  std::ostream& log;               // what was wrong with rows of a trace, and progress
  bool log_is_a_terminal = false;  // progress is shown only on one
};

// Fails on options that make no sense, files that cannot be read or written.
[[nodiscard]] Status run_hitrate(const HitrateOptions& options, const HitrateStreams& streams);

}  // namespace cairn::cli
