// The report of a run, as text and as JSON.
#pragma once

#include <string>

#include "examples/engine/options.h"
#include "examples/engine/serving.h"

namespace cairn::engine {

[[nodiscard]] std::string report_text(const Options& options, const RunFigures& figures);
// One object, one line.
[[nodiscard]] std::string report_json(const Options& options, const RunFigures& figures);

}  // namespace cairn::engine
