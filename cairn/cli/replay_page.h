// The page of `cairn replay`: hit ratio, latencies and use of the cache over time, of one run or of several side by
// side.
#pragma once

#include <span>
#include <string>

#include "cairn/cli/replay_compare.h"
#include "cairn/cli/replay_report.h"
#include "cairn/page/page.h"

namespace cairn::cli {

// `comparisons` are those of the second run and the ones after it with the first. Requires: at least one run.
[[nodiscard]] page::Page replay_page(const std::string& trace, std::span<const ReplayRun> runs,
                                     std::span<const Comparison> comparisons, const std::string& command);

}  // namespace cairn::cli
