// `cairn config`: shows and checks the configuration of a manager.
#pragma once

#include <iosfwd>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"

namespace cairn::cli {

struct ConfigOptions {
  ConfigSources sources = {};
  bool json = false;
};

// Writes every key with its value to `out`, as a TOML file with comments or as JSON. Fails if the configuration has mistakes; the
// error lists all of them. If the sources set nothing, writes the defaults without checking them, as a file to start from.
[[nodiscard]] Status run_config(const ConfigOptions& options, std::ostream& out);

}  // namespace cairn::cli
