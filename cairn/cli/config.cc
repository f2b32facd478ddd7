#include "cairn/cli/config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>
#include <string_view>

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

Status run_config(const ConfigOptions& options, std::ostream& out) {
  CAIRN_TRY_ASSIGN(const ManagerConfig config, read_config(options.sources));
  if (!options.sources.file.empty() || !is_default(config)) {
    CAIRN_TRY(config.validate());
  }
  if (options.json) {
    out << to_json(config).dump(2) << "\n";
  } else {
    out << config.to_toml();
  }
  return out.flush() ? Status() : fail(ErrorCode::kIo, "cannot write the configuration to standard output");
}

}  // namespace cairn::cli
