// The report of `cairn replay`, as text and as JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cairn/cli/replay_compare.h"
#include "cairn/cli/replay_settings.h"
#include "cairn/sim/report.h"

namespace cairn::cli {

// One run with its settings.
struct ReplayRun {
  std::string name = {};  // "blocks=4096"; tells runs that are compared apart
  ReplaySettings settings = {};
  sim::Report report = {};
};

// The invalid rows of a trace.
struct TraceProblems {
  std::uint64_t bad_rows = 0;
  std::vector<std::string> names = {};  // messages for the first ones
};

void write_report(std::ostream& out, const std::string& trace, const ReplayRun& run);
// One column for each run, and the differences that matter.
void write_comparison(std::ostream& out, const std::string& trace, std::span<const ReplayRun> runs,
                      std::span<const Comparison> comparisons);

// {"config":..., "report":... with the keys of recorded reports, "more":..., "series":...}
[[nodiscard]] std::string to_json(const std::string& trace, const ReplayRun& run, const TraceProblems& problems);
// {"runs":[one of the above for each], "compare":[...]}
[[nodiscard]] std::string to_json(const std::string& trace, std::span<const ReplayRun> runs,
                                  std::span<const Comparison> comparisons, const TraceProblems& problems);

}  // namespace cairn::cli
