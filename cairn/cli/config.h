// `cairn config`: what a manager would be configured with, by a file, the environment and the command line.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"

namespace cairn::cli {

struct ConfigOptions {
  std::string file = {};                        // none: the defaults
  ManagerConfig::Environment environment = {};  // over the file
  std::vector<std::string> settings = {};       // over both: "host.size=8GiB"
  bool json = false;
};

// What they make of it together, not yet validated. `defaults`: what is under the file's place where there is none.
[[nodiscard]] Result<ManagerConfig> read_config(const ConfigOptions& options, const ManagerConfig& defaults = {});

// Writes every key with its value to `out`: as a file of TOML with comments, or as JSON. Fails on a key or value that is
// wrong, and on keys that contradict each other; but where nothing is given at all the defaults are written, to begin
// a file with.
[[nodiscard]] Status run_config(const ConfigOptions& options, std::ostream& out);

}  // namespace cairn::cli
