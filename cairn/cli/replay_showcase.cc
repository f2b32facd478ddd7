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

#include "cairn/base/str_cat.h"
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

void write_conclusion(std::ostream& out, std::span<const ReplayRun> runs, const std::string& page) {
  const sim::Report& without = runs[0].report;
  const sim::Report& with = runs[1].report;
  out << "\nWith host memory and a disk below the GPUs, " << percent(with.reused_ratio())
      << " of the prompt tokens came from the cache instead of " << percent(without.reused_ratio())
      << ", and the first token after " << milliseconds(with.latencies.ttft_ms.mean) << " on average instead of "
      << milliseconds(without.latencies.ttft_ms.mean) << "; the plots are in " << page << "\n";
}

}  // namespace

Status prepare_showcase(ReplayCommand& command, std::ostream& out) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / str_cat("cairn-replay-", static_cast<std::uint64_t>(getuid()));
  std::filesystem::create_directories(folder, error);
  command.trace = folder / "agents.jsonl";
  std::ofstream file(command.trace);
  if (Status written = run_trace({.kind = "agents", .workload = {.requests = kRequests}}, file); !written) {
    return fail(ErrorCode::kIo,
                str_cat("cannot write the trace ", command.trace, "; set TMPDIR to a folder that can be written"));
  }
  ReplaySettings settings = command.settings;
  settings.workers = 4;
  settings.blocks = 4'096;
  ReplaySettings tiers = settings;
  tiers.host_blocks = 4 * settings.blocks;
  tiers.disk_blocks = 32 * settings.blocks;
  command.variants = {{.name = "GPU alone", .settings = settings}, {.name = "host and disk", .settings = tiers}};
  if (command.html.empty()) {
    command.html = folder / "replay.html";
  }
  command.conclude = [&out, page = command.html](std::span<const ReplayRun> runs) {
    write_conclusion(out, runs, page);
  };
  return {};
}

}  // namespace cairn::cli
