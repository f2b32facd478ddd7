#include "cairn/manager/manager_config.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "cairn/base/ids.h"
#include "cairn/base/str_cat.h"
#include "cairn/cluster/open_store.h"
#include "cairn/manager/config_keys.h"
#include "cairn/manager/config_mistakes.h"
#include "cairn/manager/config_values.h"
#include "cairn/tier/disk_file.h"

namespace cairn {
namespace {

constexpr std::string_view kPrefix = "CAIRN_";
// Variables with our prefix that the build and test scripts read.
constexpr std::string_view kOthersVariables[] = {"CAIRN_JOBS"};

// A program that fills in a ManagerConfig can give a key a value that set_key() would refuse.
void check_each_key(const ManagerConfig& config, ConfigMistakes& mistakes) {
  ManagerConfig copy = config;
  for (const ConfigKey& key : config_keys()) {
    if (const Status taken = set_key(copy, key, key.print(config)); !taken) {
      mistakes.add(key.name, taken.error());
    }
  }
}

// The bytes of a block, or std::nullopt if [model] does not say.
std::optional<std::uint64_t> check_model(const ManagerConfig& config, ConfigMistakes& mistakes) {
  const ModelConfig& model = config.model;
  if (model.name.empty()) {
    mistakes.add({"model.name"}, "model.name is empty; give the model's name, which is part of every key");
  }
  const struct {
    std::string_view key;
    std::uint32_t value;
  } numbers[] = {{"model.layers", model.layers}, {"model.heads", model.heads}, {"model.head_size", model.head_size}};
  bool has_shape = true;
  for (const auto& number : numbers) {
    if (number.value == 0) {
      mistakes.add({std::string(number.key)},
                   str_cat(number.key, " is 0; give the model's number, from which the size of a block is computed"));
      has_shape = false;
    }
  }
  if (!model.secret.empty() && !model.secret_file.empty()) {
    mistakes.add({"model.secret", "model.secret_file"},
                 "model.secret and model.secret_file are both given; give one of them");
  }
  if ((!model.secret.empty() || !model.secret_file.empty()) && !has_secret(model.scheme)) {
    mistakes.add({"model.scheme"},
                 str_cat(model.secret.empty() ? "model.secret_file" : "model.secret", " is given, but model.scheme is ",
                         to_string(model.scheme), ", which has no secret; remove it, or use scheme native"));
  }
  const bool is_known = std::ranges::none_of(
      std::initializer_list<std::string_view>{"model.layers", "model.kv", "model.heads", "model.head_size",
                                              "model.element_type", "block_size"},
      [&](std::string_view key) { return mistakes.is_wrong(key); });
  if (!has_shape || !is_known) {
    return std::nullopt;
  }
  if (const Status fits = config.shape().validate(); !fits) {
    mistakes.add("model", {fits.error().code,
                           str_cat("[model] with block_size ", config.block_size, ": ", fits.error().message)});
    return std::nullopt;
  }
  return config.shape().block_bytes();
}

void check_tier(const std::string& section, const TierConfig& tier, std::uint64_t block_bytes,
                ConfigMistakes& mistakes) {
  const std::string size = section + ".size";
  const std::string blocks = section + ".blocks";
  const std::uint64_t header = section == "disk" ? disk_header_bytes(1) : 0;
  if (tier.size != 0 && tier.size < block_bytes + header) {
    mistakes.add({size}, str_cat(size, " is ", print_size(tier.size), ", less than one block of ", block_bytes,
                                 " bytes", header != 0 ? str_cat(" and the file's header of ", header, " bytes") : "",
                                 "; give more, or make block_size smaller"));
  }
  if (tier.size / block_bytes >= index_of(kNoBlock)) {
    mistakes.add({size}, str_cat(size, " is ", print_size(tier.size), ", more than ", index_of(kNoBlock) - 1,
                                 " blocks of ", block_bytes, " bytes; give less"));
  }
  if (tier.blocks > std::numeric_limits<std::uint64_t>::max() / block_bytes) {
    mistakes.add({blocks}, str_cat(blocks, " is ", tier.blocks, "; so many blocks of ", block_bytes,
                                   " bytes are more than can be addressed; give fewer"));
  }
}

void check_device(const ManagerConfig& config, ConfigMistakes& mistakes) {
  const DeviceConfig& device = config.device;
  if (device.engine_layout == nullptr) {
    if (device.managed_by_engine) {
      mistakes.add(std::vector<std::string>(),
                   "device.managed_by_engine is set, but there is no engine_layout; describe the engine's memory");
    }
    return;
  }
  if (device.size != 0 || (device.blocks != 0 && device.blocks != device.engine_layout->blocks())) {
    const std::string key = device.size != 0 ? "device.size" : "device.blocks";
    mistakes.add({key}, str_cat(key, " is given, but the engine's memory has ", device.engine_layout->blocks(),
                                " blocks; remove it"));
  }
  if (device.engine_layout->shape() != config.shape()) {
    mistakes.add(std::vector<std::string>(),
                 str_cat("the engine's memory has blocks of ", device.engine_layout->shape().block_bytes(),
                         " bytes in another shape than [model] and block_size say (", config.shape().block_bytes(),
                         " bytes); make them agree"));
  }
}

void check_host(const HostConfig& host, std::uint64_t block_bytes, ConfigMistakes& mistakes) {
  if (host.max_size == 0) {
    return;
  }
  if (!host.is_there()) {
    mistakes.add({"host.size", "host.blocks"},
                 "host.max_size is given, but neither host.size nor host.blocks; give the initial size as well");
    return;
  }
  const std::uint64_t initial = host.size != 0 ? host.size : host.blocks * block_bytes;
  if (host.max_size < initial) {
    const std::string key = host.size != 0 ? "host.size" : "host.blocks";
    mistakes.add({key}, str_cat("host.max_size is ", print_size(host.max_size), ", less than the ", print_size(initial),
                                " of ", key, "; give at least as much, or remove it"));
  }
}

void check_disk(const DiskConfig& disk, ConfigMistakes& mistakes) {
  if (disk.is_there() && disk.path.empty()) {
    mistakes.add({"disk.path"}, "disk.path is empty; give the file of the disk tier");
  }
  if (!disk.is_there() && !disk.path.empty()) {
    mistakes.add({"disk.size", "disk.blocks"},
                 "disk.path is given, but neither disk.size nor disk.blocks; give one of them, or remove the path");
  }
  if (!disk.is_there() && disk.scrub_rate != 0) {
    mistakes.add({"disk.size", "disk.blocks"},
                 "disk.scrub_rate is given, but there is no disk tier; give disk.size and disk.path, or remove it");
  }
}

void check_remote(const ManagerConfig& config, ConfigMistakes& mistakes) {
  const RemoteConfig& remote = config.remote;
  if (!remote.is_there()) {
    return;
  }
  if (const Status url = check_store_url(remote.url); !url) {
    mistakes.add({"remote.url"}, str_cat("remote.url: ", url.error().message));
  }
  if (!config.host.is_there()) {
    mistakes.add({"host.size", "host.blocks"},
                 "remote.url is given, but there is no host tier, which blocks pass through; give host.size");
  }
  if (!remote.password.empty() && !remote.password_file.empty()) {
    mistakes.add({"remote.password", "remote.password_file"},
                 "remote.password and remote.password_file are both given; give one of them");
  }
  if (config.offload_to_remote.mode == OffloadMode::kAhead) {
    mistakes.add({"offload.remote.mode"},
                 "offload.remote.mode is ahead, but a store does not make room for what the host tier evicts; give "
                 "write-through or off");
  }
  if (has_secret(config.model.scheme) && config.model.secret.empty() && config.model.secret_file.empty()) {
    mistakes.add({"model.secret", "model.secret_file"},
                 "remote.url is given, but no model.secret: the keys of this process would be random, and nobody would "
                 "find its blocks in the store; give all processes the same model.secret_file (openssl rand -hex 32)");
  }
}

// The checks that involve several keys.
void check_events(const ManagerConfig& config, ConfigMistakes& mistakes) {
  const EventsConfig& events = config.events;
  if (events.publish.empty()) {
    for (const auto& [key, value] : {std::pair("events.replay", events.replay), {"events.engine", events.engine}}) {
      if (!value.empty()) {
        mistakes.add({key, "events.publish"},
                     str_cat(key, " is given, but events.publish is empty; set it, or leave both out"));
      }
    }
    return;
  }
  if (config.event_log == 0) {
    mistakes.add({"events.publish", "event_log"},
                 "events.publish is given, but event_log is 0, so there are no events; set event_log");
  }
  if (events.mode == EventMode::kDedup && !config.event_token_ids && events.engine.empty()) {
    mistakes.add({"events.publish", "event_token_ids"},
                 "events.publish is given, but events have no token ids, which routers need; set event_token_ids, "
                 "events.engine, or events.mode to passthrough");
  }
  if (!events.engine.empty() && config.model.scheme == KeyScheme::kNative) {
    mistakes.add({"events.engine", "model.scheme"},
                 "events.engine is given, but keys of scheme native cannot be compared with the engine's hashes; set "
                 "model.scheme to vllm, sglang or dynamo");
  }
  if (!events.engine_replay.empty() && events.engine.empty()) {
    mistakes.add({"events.engine_replay", "events.engine"},
                 "events.engine_replay is given, but events.engine is empty; set it");
  }
}

void check_together(const ManagerConfig& config, ConfigMistakes& mistakes) {
  const std::optional<std::uint64_t> block_bytes = check_model(config, mistakes);
  const struct {
    std::string section;
    const TierConfig& tier;
  } tiers[] = {{"device", config.device}, {"host", config.host}, {"disk", config.disk}};
  for (const auto& [section, tier] : tiers) {
    if (tier.blocks != 0 && tier.size != 0) {
      mistakes.add({section + ".blocks", section + ".size"},
                   str_cat(section, ".blocks and ", section, ".size are both given; give one of them"));
    }
    if (block_bytes) {
      check_tier(section, tier, *block_bytes, mistakes);
    }
  }
  if (block_bytes) {
    check_device(config, mistakes);
    check_host(config.host, *block_bytes, mistakes);
  }
  check_disk(config.disk, mistakes);
  check_remote(config, mistakes);
  if (const Result<CacheGroups> groups = config.groups(); !groups && config.block_size != 0) {
    mistakes.add({"model.groups", "block_size"}, groups.error().message);
  }
  if (config.event_token_ids && !config.model.groups.empty()) {
    mistakes.add({"event_token_ids", "model.groups"},
                 "event_token_ids is true, but events carry no token ids for a model with model.groups; turn it off");
  }
  for (const auto& [key, options] : {std::pair("offload.host.least_blocks", &config.offload_to_host),
                                     std::pair("offload.disk.least_blocks", &config.offload_to_disk)}) {
    if (options->least_blocks > 1 && !config.model.groups.empty()) {
      mistakes.add(
          {key, "model.groups"},
          str_cat(key, " is ", options->least_blocks,
                  ", but blocks of layer groups (model.groups) do not say how long their sequence is; remove it"));
    }
  }
  if (config.event_token_ids && config.event_log == 0) {
    mistakes.add({"event_token_ids", "event_log"},
                 "event_token_ids is true, but event_log is 0, so there are no events; set event_log, or turn it off");
  }
  check_events(config, mistakes);
  if (config.requests.time_to_live && !config.requests.retention) {
    mistakes.add({"requests.time_to_live", "requests.retention"},
                 "requests.time_to_live is given, but requests.retention is off; set it to true");
  }
  if (config.health.longest_wait < config.health.first_wait) {
    mistakes.add({"health.longest_wait", "health.first_wait"},
                 str_cat("health.longest_wait is ", print_duration(config.health.longest_wait),
                         ", less than health.first_wait with ", print_duration(config.health.first_wait),
                         "; give at least as much"));
  }
}

void read_environment(const ManagerConfig::Environment& environment, ManagerConfig& config, ConfigMistakes& mistakes) {
  std::vector<std::string> known;
  for (const ConfigKey& key : config_keys()) {
    known.push_back(key.variable());
  }
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPrefix) || std::ranges::find(kOthersVariables, name) != std::end(kOthersVariables)) {
      continue;
    }
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      mistakes.add(
          name, {ErrorCode::kInvalidArgument, str_cat("unknown environment variable ", name, suggestion(name, known))});
      continue;
    }
    const ConfigKey& key = config_keys()[static_cast<std::size_t>(found - known.begin())];
    if (const Status taken = set_key(config, key, value); !taken) {
      mistakes.add(key.name, {taken.error().code, str_cat("environment variable ", name, ": ", taken.error().message)});
    }
  }
}

void read_setting(std::string_view setting, ManagerConfig& config, ConfigMistakes& mistakes) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string_view::npos) {
    mistakes.add(setting, {ErrorCode::kInvalidArgument,
                           str_cat("--set ", setting, " has no value; write it as in --set host.size=8GiB")});
    return;
  }
  const std::string_view key = setting.substr(0, equals);
  if (const Status set = config.set(key, setting.substr(equals + 1)); !set) {
    mistakes.add(key, {set.error().code, str_cat("--set ", key, ": ", set.error().message)});
  }
}

}  // namespace

ManagerConfig::Environment ManagerConfig::environment_of_process() {
  Environment environment;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view variable = *at;
    const std::size_t equals = variable.find('=');
    if (equals != std::string_view::npos) {
      environment.emplace_back(variable.substr(0, equals), variable.substr(equals + 1));
    }
  }
  return environment;
}

Result<ManagerConfig> ManagerConfig::from_toml(std::string_view text, std::string_view file_name) {
  ManagerConfig config;
  ConfigMistakes mistakes;
  read_toml(text, file_name, config, mistakes);
  CAIRN_TRY(mistakes.status());
  return config;
}

Result<ManagerConfig> ManagerConfig::from_file(const std::string& path) {
  ManagerConfig config;
  ConfigMistakes mistakes;
  read_toml_file(path, config, mistakes);
  CAIRN_TRY(mistakes.status());
  return config;
}

Status ManagerConfig::apply(const Environment& environment) {
  ManagerConfig changed = *this;
  ConfigMistakes mistakes;
  read_environment(environment, changed, mistakes);
  CAIRN_TRY(mistakes.status());
  *this = std::move(changed);
  return {};
}

Status ManagerConfig::set(std::string_view key, std::string_view value) {
  const ConfigKey* const known = find_key(key);
  return known == nullptr ? unknown_key(key) : set_key(*this, *known, value);
}

Result<TenantId> RequestsConfig::tenant_id(std::string_view name) const {
  if (name.empty()) {
    return kDefaultTenant;
  }
  const auto found = std::ranges::find(tenants, name, &TenantQuota::name);
  if (found == tenants.end()) {
    return fail(ErrorCode::kNotFound, str_cat("tenant '", name, "' has no quota; name it in requests.tenants"));
  }
  return TenantId{static_cast<std::underlying_type_t<TenantId>>(found - tenants.begin() + 1)};
}

Status ManagerConfig::validate() const {
  ConfigMistakes mistakes;
  check_each_key(*this, mistakes);
  if (!device.is_there() && device.engine_layout == nullptr && !device.managed_by_engine && !host.is_there() &&
      !disk.is_there()) {
    mistakes.add({"device.size", "device.blocks", "host.size", "host.blocks", "disk.size", "disk.blocks"},
                 "there is no tier; give device, host or disk a size or blocks");
  }
  check_together(*this, mistakes);
  return mistakes.status();
}

Result<ManagerConfig> read_config(const ConfigSources& sources) {
  ManagerConfig config = sources.defaults;
  ConfigMistakes mistakes;
  bool is_readable = true;
  if (sources.toml) {
    config = ManagerConfig();
    is_readable = read_toml(*sources.toml, sources.toml_name, config, mistakes);
  } else if (!sources.file.empty()) {
    config = ManagerConfig();
    is_readable = read_toml_file(sources.file, config, mistakes);
  }
  read_environment(sources.environment, config, mistakes);
  for (const std::string_view setting : sources.settings) {
    read_setting(setting, config, mistakes);
  }
  if (mistakes.empty()) {
    return config;
  }
  if (is_readable) {
    check_together(config, mistakes);
  }
  CAIRN_TRY(mistakes.status());
  return config;
}

KvShape ManagerConfig::shape() const {
  return {.layers = model.layers,
          .kv = model.kv,
          .page_size = block_size,
          .heads = model.heads,
          .head_size = model.head_size,
          .element_bits = element_bits(model.element_type).value_or(0)};
}

Result<std::optional<KeySecret>> ManagerConfig::key_secret() const {
  if (model.secret.empty() && model.secret_file.empty()) {
    return std::optional<KeySecret>();
  }
  Result<KeySecret> secret =
      model.secret.empty() ? KeySecret::from_file(model.secret_file) : KeySecret::from_hex(model.secret);
  if (!secret) {
    return fail(secret.error().code,
                str_cat(model.secret.empty() ? "model.secret_file: " : "model.secret: ", secret.error().message));
  }
  return std::optional<KeySecret>(*std::move(secret));
}

Result<std::string> ManagerConfig::remote_password() const {
  if (remote.password_file.empty()) {
    return remote.password;
  }
  std::ifstream file(remote.password_file);
  std::string password;
  if (!file || !std::getline(file, password) || password.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("remote.password_file: cannot read a password from '", remote.password_file, "'"));
  }
  if (password.ends_with('\r')) {
    password.pop_back();
  }
  return password;
}

namespace {

// " (global:full, local:sliding:1024)"; empty for a model without groups, whose files and keys are those of before groups.
std::string groups_text(const std::vector<CacheGroup>& groups) {
  return groups.empty() ? std::string() : str_cat(" (", print_groups(groups), ")");
}

}  // namespace

Result<CacheGroups> ManagerConfig::groups() const {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "block_size is 0; give the tokens of a block");
  }
  Result<CacheGroups> groups = CacheGroups::make(block_size, model.groups);
  if (!groups) {
    return fail(groups.error().code, str_cat("model.groups: ", groups.error().message));
  }
  return groups;
}

Namespace ManagerConfig::space() const {
  // The numbers of the shape are part of it: models of the same name whose blocks have the same size can differ in them.
  return {.tenant = model.tenant,
          .model = model.name,
          .weights_generation = model.weights_generation,
          .layout = str_cat(to_string(Arrangement::kContiguousNhd), " ", model.layers, "x", model.kv, "x", model.heads,
                            "x", model.head_size, groups_text(model.groups)),
          .element_type = model.element_type,
          .shard = model.shard,
          .block_size = block_size,
          .scheme = model.scheme};
}

}  // namespace cairn
