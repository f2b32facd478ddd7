#include "cairn/cli/config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>
#include <string_view>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_keys.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_default(const ManagerConfig& config) { return config.to_toml() == ManagerConfig().to_toml(); }

Json to_json(const ManagerConfig& config) {
  Json all = Json::object();
  for (const ConfigKey& key : config_keys()) {
    Json* section = &all;
    for (std::string_view names = key.section(); !names.empty();) {
      const std::string_view name = names.substr(0, names.find('.'));
      section = &(*section)[std::string(name)];
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
    const std::string value = key.is_secret ? std::string() : key.print(config);
    (*section)[std::string(key.short_name())] = key.is_bare(value) ? Json::parse(value) : Json(value);
  }
  return all;
}

}  // namespace

Result<ManagerConfig> read_config(const ConfigOptions& options, const ManagerConfig& defaults) {
  Result<ManagerConfig> config =
      options.file.empty() ? Result<ManagerConfig>(defaults) : ManagerConfig::from_file(options.file);
  if (!config) {
    return config;
  }
  if (const Status applied = config->apply(options.environment); !applied) {
    return Unexpected(applied.error());
  }
  for (const std::string_view setting : options.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("--set ", setting, " has no value; write it as in --set host.size=8GiB"));
    }
    if (const Status set = config->set(setting.substr(0, equals), setting.substr(equals + 1)); !set) {
      return fail(set.error().code, str_cat("--set ", setting.substr(0, equals), ": ", set.error().message));
    }
  }
  return config;
}

Status run_config(const ConfigOptions& options, std::ostream& out) {
  const Result<ManagerConfig> config = read_config(options);
  if (!config) {
    return Unexpected(config.error());
  }
  const bool is_given = !options.file.empty() || !is_default(*config);
  if (const Status valid = config->validate(); is_given && !valid) {
    return valid;
  }
  if (options.json) {
    out << to_json(*config).dump(2) << "\n";
  } else {
    out << config->to_toml();
  }
  return out.flush() ? Status() : fail(ErrorCode::kExhausted, "the configuration could not be written to its end");
}

}  // namespace cairn::cli
