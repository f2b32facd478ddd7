#include "cairn/cli/replay_showcase.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"
#include "cairn/cli/trace_output.h"

namespace cairn::cli {
namespace {

constexpr std::uint32_t kRequests = 4'000;

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f %%", 100 * share);
  return text.data();
}

std::string milliseconds(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f ms", value);
  return text.data();
}

void write_answer(std::ostream& out, std::span<const ReplayRun> runs, const std::string& page) {
  const sim::Report& without = runs.front().report;
  const sim::Report& with = runs.back().report;
  const double before = without.latencies.ttft_ms.mean;
  const double after = with.latencies.ttft_ms.mean;
  out << "With host memory and a disk below the GPUs, the first token comes after " << milliseconds(after)
      << " on average instead of " << milliseconds(before) << " (" << percent(1 - after / before)
      << " sooner): " << percent(with.reused_ratio()) << " of the prompt tokens are not computed again instead of "
      << percent(without.reused_ratio()) << ".\n"
      << with_commas(kRequests) << " requests of agents that call tools, on " << runs.front().settings.workers
      << " simulated GPUs (" << runs.front().settings.engine << "). Plots: " << page
      << "\nYour own: cairn replay TRACE --engine NAME --host-size SIZE --disk-size SIZE --scenarios\n\n";
}

}  // namespace

Status prepare_showcase(ReplayCommand& command, std::ostream& out) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / str_cat("cairn-replay-", static_cast<std::uint64_t>(getuid()));
  std::filesystem::create_directories(folder, error);
  const std::string trace = folder / "agents.jsonl";
  std::ofstream file(trace);
  if (Status written = run_trace({.kind = "agents", .workload = {.requests = kRequests}}, file); !written) {
    return fail(ErrorCode::kIo,
                str_cat("cannot write the trace ", trace, "; set TMPDIR to a folder that can be written"));
  }
  command.traces = {trace};
  // What the user gives overrides this.
  std::vector<std::string>& options = command.settings.options;
  options.insert(options.begin(), {"engine=h100-8b", "workers=4", "host-size=256GB", "disk-size=2TB"});
  if (command.compare.empty() && command.scenarios == Scenarios::kNone) {
    command.scenarios = Scenarios::kFirstAndLast;
  }
  if (command.html.empty()) {
    command.html = folder / "replay.html";
  }
  if (command.compare.empty()) {
    command.introduce = [&out, page = command.html](std::span<const ReplayRun> runs) { write_answer(out, runs, page); };
  }
  return {};
}

}  // namespace cairn::cli
