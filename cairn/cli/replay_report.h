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

// Where the prompt tokens of all admissions came from.
struct TokenSources {
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  std::uint64_t disk = 0;
  std::uint64_t computed = 0;
  [[nodiscard]] std::uint64_t all() const { return device + host + disk + computed; }
};
[[nodiscard]] TokenSources sources_of(const sim::Report& report);
// Dollars for a million prompt tokens: of the time in which GPUs computed, and of the tiers over the whole time.
struct ReplayCost {
  double gpu = 0;
  double tiers = 0;
  [[nodiscard]] double all() const { return gpu + tiers; }
};
[[nodiscard]] ReplayCost cost_of(const ReplayRun& run);

// "16,384 blocks of 64 tokens (1,048,576 tokens, 154.6 GB), host ..."
[[nodiscard]] std::string settings_text(const ReplaySettings& settings);

void write_report(std::ostream& out, const std::string& trace, const ReplayRun& run);
// One column for each run, and the differences that matter.
void write_comparison(std::ostream& out, const std::string& trace, std::span<const ReplayRun> runs,
                      std::span<const Comparison> comparisons);

// {"config":..., "report":... with the keys of recorded reports, "more":..., "series":...}
[[nodiscard]] std::string to_json(const std::string& trace, const ReplayRun& run, const TraceProblems& problems);
// {"runs":[one of the above for each, with its "name"], "compare":[...]}
[[nodiscard]] std::string to_json(const std::string& trace, std::span<const ReplayRun> runs,
                                  std::span<const Comparison> comparisons, const TraceProblems& problems);

}  // namespace cairn::cli
