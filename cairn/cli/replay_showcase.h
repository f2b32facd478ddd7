// `cairn replay` without a trace: agents that call tools, made by the trace generator, through engines with and without
// tiers below them. A few seconds; the main job of ./run.
#pragma once

#include "cairn/base/result.h"
#include "cairn/cli/replay_runs.h"

namespace cairn::cli {

// Fills in what the command leaves open: the trace, which it writes to a folder for temporary files, the settings that
// are compared, the page, and the sentence at the end. Fails where the folder cannot be written.
[[nodiscard]] Status prepare_showcase(ReplayCommand& command, std::ostream& out);

}  // namespace cairn::cli
