// `cairn replay` without a trace: compares engines with and without lower tiers, on a generated trace of agents that call tools.
// Takes a few seconds; ./run does it.
#pragma once

#include "cairn/base/result.h"
#include "cairn/cli/replay_runs.h"

namespace cairn::cli {

// Fills in the command: the trace, which it writes to a temporary folder, the settings to compare, the page, and the answer before
// the report. Fails if the folder cannot be written.
[[nodiscard]] Status prepare_showcase(ReplayCommand& command, std::ostream& out);

}  // namespace cairn::cli
