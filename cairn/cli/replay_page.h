// The page of `cairn replay`: hit ratio, latencies and use of the cache over time, of one or several runs.
#pragma once

#include <span>
#include <string>

#include "cairn/cli/replay_compare.h"
#include "cairn/cli/replay_report.h"
#include "cairn/page/page.h"

namespace cairn::cli {

// `comparisons` compares each run after the first with the first. Requires: at least one run.
[[nodiscard]] page::Page replay_page(const std::string& trace, std::span<const ReplayRun> runs,
                                     std::span<const Comparison> comparisons, const std::string& command);

}  // namespace cairn::cli
