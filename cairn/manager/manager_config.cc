#include "cairn/manager/manager_config.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <span>

#include "cairn/base/ids.h"
#include "cairn/base/str_cat.h"
#include "cairn/manager/config_keys.h"
#include "cairn/manager/config_values.h"

namespace cairn {
namespace {

constexpr std::string_view kPrefix = "CAIRN_";
// Read by the scripts that build and test.
constexpr std::string_view kOthersVariables[] = {"CAIRN_JOBS"};

Unexpected<Error> wrong(std::string message) { return fail(ErrorCode::kInvalidArgument, std::move(message)); }

// Filled in by hand, a struct may hold what its keys would refuse.
Status check_each_key(const ManagerConfig& config) {
  ManagerConfig copy = config;
  for (const ConfigKey& key : config_keys()) {
    if (Status taken = set_key(copy, key, key.print(config)); !taken) {
      return taken;
    }
  }
  return {};
}

Status check_model(const ManagerConfig& config) {
  const ModelConfig& model = config.model;
  if (model.name.empty()) {
    return wrong("model.name is empty; give the model's name: it separates its blocks from those of others");
  }
  const struct {
    std::string_view key;
    std::uint32_t value;
  } numbers[] = {{"model.layers", model.layers}, {"model.heads", model.heads}, {"model.head_size", model.head_size}};
  for (const auto& number : numbers) {
    if (number.value == 0) {
      return wrong(str_cat(number.key, " is 0; give the model's, so that it is known how large a block is"));
    }
  }
  if (!model.secret.empty() && !model.secret_file.empty()) {
    return wrong("model.secret and model.secret_file are both given; give one of them");
  }
  if ((!model.secret.empty() || !model.secret_file.empty()) && !has_secret(model.scheme)) {
    return wrong(str_cat(model.secret.empty() ? "model.secret_file" : "model.secret", " is given, but model.scheme is ",
                         to_string(model.scheme), ", which has no secret; leave it out, or use scheme native"));
  }
  if (Status fits = config.shape().validate(); !fits) {
    return fail(fits.error().code, str_cat("[model] with block_size ", config.block_size, ": ", fits.error().message));
  }
  return {};
}

Status check_tier(std::string_view section, const TierConfig& tier, std::uint64_t block_bytes) {
  if (tier.blocks != 0 && tier.size != 0) {
    return wrong(str_cat(section, ".blocks and ", section, ".size are both given; give one of them"));
  }
  if (tier.size != 0 && tier.size < block_bytes) {
    return wrong(str_cat(section, ".size is ", print_size(tier.size), ", less than one block of ", block_bytes,
                         " bytes; give more, or make block_size smaller"));
  }
  if (tier.size / block_bytes >= index_of(kNoBlock)) {
    return wrong(str_cat(section, ".size is ", print_size(tier.size), ", more than ", index_of(kNoBlock) - 1,
                         " blocks of ", block_bytes, " bytes; give less"));
  }
  if (tier.blocks > std::numeric_limits<std::uint64_t>::max() / block_bytes) {
    return wrong(str_cat(section, ".blocks is ", tier.blocks, "; so many blocks of ", block_bytes,
                         " bytes are more than can be addressed"));
  }
  return {};
}

Status check_device(const ManagerConfig& config) {
  const DeviceConfig& device = config.device;
  if (device.engine_layout == nullptr) {
    return device.managed_by_engine
               ? wrong("device.managed_by_engine is set, but there is no engine_layout; describe the engine's memory")
               : Status();
  }
  if (device.size != 0 || (device.blocks != 0 && device.blocks != device.engine_layout->blocks())) {
    return wrong(str_cat("device.", device.size != 0 ? "size" : "blocks", " is given, but the engine's memory has ",
                         device.engine_layout->blocks(), " blocks; leave it out"));
  }
  if (device.engine_layout->shape() != config.shape()) {
    return wrong(str_cat("the engine's memory has blocks of ", device.engine_layout->shape().block_bytes(),
                         " bytes in another shape than [model] and block_size say (", config.shape().block_bytes(),
                         " bytes); make them agree"));
  }
  return {};
}

Status check_host(const HostConfig& host, std::uint64_t block_bytes) {
  if (host.max_size == 0) {
    return {};
  }
  if (!host.is_there()) {
    return wrong("host.max_size is given, but neither host.size nor host.blocks; give what it begins with");
  }
  const std::uint64_t begins_with = host.size != 0 ? host.size : host.blocks * block_bytes;
  if (host.max_size < begins_with) {
    return wrong(str_cat("host.max_size is ", print_size(host.max_size), ", less than the ", print_size(begins_with),
                         " of host.", host.size != 0 ? "size" : "blocks", "; give at least as much, or leave it out"));
  }
  return {};
}

Status check_disk(const DiskConfig& disk) {
  if (disk.is_there() && disk.path.empty()) {
    return wrong("disk.path is empty; give the file of the disk tier");
  }
  if (!disk.is_there() && !disk.path.empty()) {
    return wrong("disk.path is given, but neither disk.size nor disk.blocks; give one, or leave the path out");
  }
  if (!disk.is_there() && disk.scrub_rate != 0) {
    return wrong("disk.scrub_rate is given, but there is no disk tier; give disk.size and disk.path, or leave it out");
  }
  return {};
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

Status ManagerConfig::apply(const Environment& environment) {
  ManagerConfig changed = *this;
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
      return wrong(str_cat("the variable ", name, " is no setting", suggestion(name, known)));
    }
    const ConfigKey& key = config_keys()[static_cast<std::size_t>(found - known.begin())];
    if (Status taken = set_key(changed, key, value); !taken) {
      return wrong(str_cat("the variable ", name, ": ", taken.error().message));
    }
  }
  *this = std::move(changed);
  return {};
}

Status ManagerConfig::set(std::string_view key, std::string_view value) {
  const ConfigKey* const known = find_key(key);
  return known == nullptr ? unknown_key(key) : set_key(*this, *known, value);
}

Status ManagerConfig::validate() const {
  if (Status taken = check_each_key(*this); !taken) {
    return taken;
  }
  if (!device.is_there() && device.engine_layout == nullptr && !device.managed_by_engine && !host.is_there() &&
      !disk.is_there()) {
    return wrong("there is no tier; give device, host or disk a size or blocks");
  }
  if (Status fits = check_model(*this); !fits) {
    return fits;
  }
  const std::uint64_t block_bytes = shape().block_bytes();
  const struct {
    std::string_view section;
    const TierConfig& tier;
  } tiers[] = {{"device", device}, {"host", host}, {"disk", disk}};
  for (const auto& [section, tier] : tiers) {
    if (Status fits = check_tier(section, tier, block_bytes); !fits) {
      return fits;
    }
  }
  for (Status fits : {check_device(*this), check_host(host, block_bytes), check_disk(disk)}) {
    if (!fits) {
      return fits;
    }
  }
  if (health.longest_wait < health.first_wait) {
    return wrong(str_cat("health.longest_wait is ", print_duration(health.longest_wait),
                         ", less than health.first_wait with ", print_duration(health.first_wait)));
  }
  return {};
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

Namespace ManagerConfig::space() const {
  // The numbers of the shape too: two models of one name whose blocks are of the same size are still two.
  return {.tenant = model.tenant,
          .model = model.name,
          .weights_generation = model.weights_generation,
          .layout = str_cat(to_string(Arrangement::kContiguousNhd), " ", model.layers, "x", model.kv, "x", model.heads,
                            "x", model.head_size),
          .element_type = model.element_type,
          .shard = model.shard,
          .block_size = block_size,
          .scheme = model.scheme};
}

}  // namespace cairn
