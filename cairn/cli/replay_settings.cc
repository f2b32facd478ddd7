#include "cairn/cli/replay_settings.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"
#include "cairn/manager/config_keys.h"
#include "cairn/manager/config_values.h"

namespace cairn::cli {
namespace {

template <typename Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_switch(std::string_view text, bool& out) {
  out = text == "on";
  return text == "on" || text == "off";
}

bool read_choice(std::string_view text, std::initializer_list<std::string_view> choices, std::string& out) {
  out = text;
  return std::ranges::find(choices, text) != choices.end();
}

bool read_time(std::string_view text, Duration& out) {
  const std::optional<Duration> time = text == "0" ? Duration(0) : parse_duration(text);
  out = time.value_or(Duration(0));
  return time.has_value();
}

// "disk:stall:10m+30s"
bool read_fault(std::string_view text, sim::TierFault& fault) {
  const std::size_t first = text.find(':');
  const std::size_t second = text.find(':', first == std::string_view::npos ? first : first + 1);
  const std::size_t plus = text.find('+');
  if (second == std::string_view::npos || plus == std::string_view::npos || plus < second) {
    return false;
  }
  const std::string_view tier = text.substr(0, first);
  const std::string_view kind = text.substr(first + 1, second - first - 1);
  fault.level = tier == "host" ? CacheLevel::kG2 : CacheLevel::kG3;
  using Kind = sim::TierFault::Kind;
  constexpr Kind kKinds[] = {Kind::kStall, Kind::kFail, Kind::kGarbage};
  const auto* const found = std::ranges::find(kKinds, kind, [](Kind each) { return sim::to_string(each); });
  if ((tier != "host" && tier != "disk") || found == std::end(kKinds)) {
    return false;
  }
  fault.kind = *found;
  return read_time(text.substr(second + 1, plus - second - 1), fault.begin) &&
         read_time(text.substr(plus + 1), fault.length);
}

// "gpu:3,host:0.004,disk:0.0001"
bool read_prices(std::string_view text, ReplayPrices& prices) {
  while (true) {
    const std::string_view one = text.substr(0, text.find(','));
    const std::size_t colon = one.find(':');
    if (colon == std::string_view::npos) {
      return false;
    }
    const std::string_view name = one.substr(0, colon);
    double* const price = name == "gpu"    ? &prices.gpu
                          : name == "host" ? &prices.host
                          : name == "disk" ? &prices.disk
                                           : nullptr;
    if (price == nullptr || !read_number(one.substr(colon + 1), *price) || *price < 0) {
      return false;
    }
    if (one.size() == text.size()) {
      return true;
    }
    text.remove_prefix(one.size() + 1);
  }
}

TierConfig* tier_of(std::string_view section, ManagerConfig& manager) {
  return section == "device" ? static_cast<TierConfig*>(&manager.device)
         : section == "host" ? static_cast<TierConfig*>(&manager.host)
         : section == "disk" ? static_cast<TierConfig*>(&manager.disk)
                             : nullptr;
}

// A key of the manager's configuration. A size replaces a number of blocks, and the other way round.
Status set_manager_key(std::string_view key, std::string_view value, ManagerConfig& manager) {
  const std::size_t dot = key.find('.');
  if (TierConfig* const tier = dot == std::string_view::npos ? nullptr : tier_of(key.substr(0, dot), manager)) {
    const std::string_view name = key.substr(dot + 1);
    if (name == "size" || name == "blocks") {
      tier->size = 0;
      tier->blocks = 0;
    }
  }
  return manager.set(key, value);
}

Status set_policy(std::string_view value, ManagerConfig& manager) {
  const std::optional<PolicyKind> policy = parse_policy(value);
  if (!policy) {
    return fail(ErrorCode::kInvalidArgument, str_cat("unknown policy '", value, "' (expected ", policy_names(), ")"));
  }
  manager.device.policy = manager.host.policy = manager.disk.policy = *policy;
  return {};
}

Status set_engine(std::string_view name, ReplaySettings& settings) {
  CAIRN_TRY_ASSIGN(const EngineProfile profile, find_engine(name));
  settings.engine = profile.name;
  settings.kv_bytes = profile.kv_bytes;
  settings.host_rate = profile.host;
  settings.disk_rate = profile.disk;
  settings.manager.device.blocks = 0;
  settings.manager.device.size = profile.device_size;
  return {};
}

// Options of the command line that are keys of the configuration.
constexpr std::pair<std::string_view, std::string_view> kShorthands[] = {
    {"block-size", "block_size"},   {"blocks", "device.blocks"}, {"device-size", "device.size"},
    {"host-blocks", "host.blocks"}, {"host-size", "host.size"},  {"disk-blocks", "disk.blocks"},
    {"disk-size", "disk.size"},
};

Status set_option(std::string_view key, std::string_view value, ReplaySettings& settings) {
  if (const auto* const shorthand =
          std::ranges::find(kShorthands, key, &std::pair<std::string_view, std::string_view>::first);
      shorthand != std::end(kShorthands)) {
    return set_manager_key(shorthand->second, value, settings.manager);
  }
  if (key == "policy") {
    return set_policy(value, settings.manager);
  }
  if (key == "engine") {
    return set_engine(value, settings);
  }
  const auto set_text = [&](std::string& text) {
    text = value;
    return !value.empty();
  };
  struct Setting {
    std::string_view name;
    std::function<bool()> set;
  };
  const Setting known[] = {
      {"workers", [&] { return read_number(value, settings.workers); }},
      {"host-bandwidth", [&] { return read_link_rate(value, settings.host_rate); }},
      {"disk-bandwidth", [&] { return read_link_rate(value, settings.disk_rate); }},
      {"host-latency", [&] { return read_time(value, settings.host_latency); }},
      {"disk-latency", [&] { return read_time(value, settings.disk_latency); }},
      {"shared-links", [&] { return read_choice(value, {"none", "host", "disk", "both"}, settings.shared_links); }},
      {"link-order", [&] { return read_choice(value, {"fifo", "shared"}, settings.link_order); }},
      {"fault", [&] { return value == "none" || read_fault(value, settings.faults.emplace_back()); }},
      {"prices", [&] { return read_prices(value, settings.prices); }},
      {"kv-bytes", [&] { return read_number(value, settings.kv_bytes) && settings.kv_bytes > 0; }},
      {"placement", [&] { return set_text(settings.placement); }},
      {"profile", [&] { return set_text(settings.profile); }},
      {"speedup", [&] { return read_number(value, settings.speedup); }},
      {"rate", [&] { return read_number(value, settings.rate) && settings.rate >= 0; }},
      {"concurrency", [&] { return read_number(value, settings.concurrency); }},
      {"max-seqs", [&] { return read_number(value, settings.max_seqs); }},
      {"batch-tokens", [&] { return read_number(value, settings.batch_tokens); }},
      {"chunked-prefill", [&] { return read_switch(value, settings.chunked_prefill); }},
      {"prefix-caching", [&] { return read_switch(value, settings.prefix_caching); }},
      {"costs", [&] { return set_text(settings.costs); }},
  };
  for (const Setting& setting : known) {
    if (setting.name == key) {
      return setting.set() ? Status()
                           : fail(ErrorCode::kInvalidArgument, str_cat("invalid value '", value, "' for ", key));
    }
  }
  if (find_key(key) == nullptr) {
    std::string names = "engine, policy";
    for (const auto& [name, ignored] : kShorthands) {
      names += str_cat(", ", name);
    }
    for (const Setting& setting : known) {
      names += str_cat(", ", setting.name);
    }
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown option '", key, "' (expected ", names, ", or a key that cairn config lists)"));
  }
  return set_manager_key(key, value, settings.manager);
}

Result<sim::CostModel> read_costs(const ReplaySettings& settings) {
  if (settings.costs.empty()) {
    if (settings.engine.empty()) {
      return sim::CostModel::polynomial();
    }
    CAIRN_TRY_ASSIGN(const EngineProfile engine, find_engine(settings.engine));
    return sim::CostModel::parse(engine.costs);
  }
  std::ifstream file(settings.costs);
  if (!file) {
    return fail(ErrorCode::kNotFound, str_cat("--costs: cannot open ", settings.costs));
  }
  const std::string csv{std::istreambuf_iterator<char>(file), {}};
  Result<sim::CostModel> costs = sim::CostModel::parse(csv);
  if (!costs) {
    return fail(costs.error().code, str_cat("--costs: ", settings.costs, ", ", costs.error().message));
  }
  return costs;
}

Status check(const ReplaySettings& settings) {
  const auto at_least = [](std::string_view option, std::uint64_t value, std::uint64_t least) -> Status {
    if (value >= least) {
      return {};
    }
    return fail(ErrorCode::kInvalidArgument, str_cat("--", option, " is ", value, "; give at least ", least));
  };
  for (const auto& [option, value, least] : {std::tuple{"workers", settings.workers, 1U},
                                             {"block-size", settings.manager.block_size, 2U},
                                             {"max-seqs", settings.max_seqs, 1U},
                                             {"batch-tokens", settings.batch_tokens, 1U}}) {
    CAIRN_TRY(at_least(option, value, least));
  }
  return at_least("blocks", settings.blocks_of(settings.manager.device), 1);
}

ReplaySettings default_settings() {
  ReplaySettings settings;
  settings.manager.block_size = 64;
  settings.manager.device.blocks = 16'384;
  return settings;
}

// The model that the configuration describes, or one with as many bytes a token.
Status complete_model(ReplaySettings& settings) {
  ModelConfig& model = settings.manager.model;
  const bool is_given = model.layers != 0 || model.heads != 0 || model.head_size != 0;
  if (settings.kv_bytes == 0) {
    if (is_given) {
      CAIRN_TRY(settings.manager.shape().validate());
      settings.kv_bytes = settings.manager.shape().block_bytes() / settings.manager.block_size;
      return {};
    }
    settings.kv_bytes = kDefaultKvBytes;
  }
  if (settings.kv_bytes > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("--kv-bytes is ", settings.kv_bytes, "; give less than 4 GB"));
  }
  model.layers = model.kv = model.heads = 1;
  model.head_size = static_cast<std::uint32_t>(settings.kv_bytes);
  model.element_type = "int8";
  return {};
}

std::pair<std::string_view, std::string_view> split(std::string_view option) {
  const std::size_t equals = option.find('=');
  return {option.substr(0, equals), equals == std::string_view::npos ? "" : option.substr(equals + 1)};
}

}  // namespace

Result<ReplaySettings> read_settings(const ReplaySources& sources) {
  ReplaySettings settings = default_settings();
  if (!sources.config.empty()) {
    CAIRN_TRY_ASSIGN(ManagerConfig given, read_config({.file = sources.config}));
    if (!given.device.is_there()) {
      given.device.blocks = settings.manager.device.blocks;
    }
    settings.manager = std::move(given);
  }
  const auto is_engine = [](std::string_view option) { return option.starts_with("engine="); };
  std::vector<std::string> options = sources.options;
  std::ranges::stable_partition(options, is_engine);
  for (const std::string& option : options) {
    const auto [key, value] = split(option);
    CAIRN_TRY(set_option(key, value, settings));
  }
  CAIRN_TRY(complete_model(settings));
  if (settings.profile == "seed") {
    const auto sets_policy = [](std::string_view option) {
      return option.starts_with("policy=") || option.starts_with("device.policy=");
    };
    if (std::ranges::none_of(options, sets_policy)) {
      settings.manager.device.policy = PolicyKind::kLineageTick;  // as the original
    }
    settings.manager.device.leaves_first = false;
  }
  return settings;
}

Result<std::vector<NamedSettings>> vary(const ReplaySources& sources, std::string_view compare) {
  const auto [key, values] = split(compare);
  if (key.empty() || values.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("--compare ", compare, ": expected KEY=V1,V2,..., such as blocks=4096,16384"));
  }
  std::string_view rest = values;
  std::vector<NamedSettings> all;
  while (true) {
    const std::size_t comma = rest.find(',');
    ReplaySources one = sources;
    one.options.push_back(str_cat(key, "=", rest.substr(0, comma)));
    Result<ReplaySettings> settings = read_settings(one);
    if (!settings) {
      return fail(settings.error().code, str_cat("--compare: ", settings.error().message));
    }
    all.push_back({.name = one.options.back(), .settings = *std::move(settings)});
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  if (all.size() < 2) {
    return fail(ErrorCode::kInvalidArgument, str_cat("--compare ", compare, " has one value; give two or more"));
  }
  return all;
}

Result<std::vector<NamedSettings>> scenarios(const ReplaySources& sources) {
  CAIRN_TRY_ASSIGN(const ReplaySettings all, read_settings(sources));
  const bool has_host = all.manager.host.is_there();
  const bool has_disk = all.manager.disk.is_there();
  if (!has_host && !has_disk) {
    return fail(ErrorCode::kInvalidArgument,
                "--scenarios compares the GPU with and without tiers; give --host-size, --disk-size or both");
  }
  struct Scenario {
    const char* name;
    bool host;
    bool disk;
  };
  std::vector<NamedSettings> chosen;
  for (const Scenario& scenario : {Scenario{"GPU", false, false}, Scenario{"+host", true, false},
                                   Scenario{"+disk", false, true}, Scenario{"+both", true, true}}) {
    if ((scenario.host && !has_host) || (scenario.disk && !has_disk)) {
      continue;
    }
    NamedSettings& one = chosen.emplace_back(NamedSettings{.name = scenario.name, .settings = all});
    for (const auto& [is_kept, tier] : {std::pair<bool, TierConfig*>{scenario.host, &one.settings.manager.host},
                                        {scenario.disk, &one.settings.manager.disk}}) {
      if (!is_kept) {
        tier->size = 0;
        tier->blocks = 0;
      }
    }
  }
  return chosen;
}

Result<sim::ReplayOptions> to_options(const ReplaySettings& settings) {
  CAIRN_TRY(check(settings));
  const std::optional<sim::Profile> profile = sim::parse_profile(settings.profile);
  if (!profile) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown profile '", settings.profile, "' (expected seed or strict)"));
  }
  const std::optional<sim::Placement> placement = sim::parse_placement(settings.placement);
  if (!placement) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown placement '", settings.placement, "' (expected round-robin or prefix)"));
  }
  CAIRN_TRY_ASSIGN(sim::CostModel costs, read_costs(settings));
  CAIRN_TRY_ASSIGN(sim::CostModel scaled, costs.with_speedup(settings.speedup));
  sim::ReplayOptions options{
      .engine = {.blocks = static_cast<std::uint32_t>(settings.blocks_of(settings.manager.device)),
                 .block_size = settings.manager.block_size,
                 .eviction = settings.manager.device.policy,
                 .leaves_first = settings.manager.device.leaves_first,
                 .profile = *profile,
                 .max_num_seqs = settings.max_seqs,
                 .max_num_batched_tokens = settings.batch_tokens,
                 .chunked_prefill = settings.chunked_prefill,
                 .prefix_caching = settings.prefix_caching,
                 .costs = std::move(scaled)},
      .workers = settings.workers,
      .manager = settings.manager,
      .faults = settings.faults,
      .placement = *placement,
      .concurrency = settings.concurrency};
  const auto link = [&](const LinkRate& rate, Duration latency, std::string_view name) {
    return sim::ReplayLink{.gigabytes_per_s_down = rate.down,
                           .gigabytes_per_s_up = rate.up,
                           .latency = latency,
                           .in_order = settings.link_order == "fifo",
                           .shared_by_all = settings.shared_links == "both" || settings.shared_links == name};
  };
  options.host_link = link(settings.host_rate, settings.host_latency, "host");
  options.disk_link = link(settings.disk_rate, settings.disk_latency, "disk");
  // What only a process on a machine needs.
  DiskConfig& disk = options.manager.disk;
  disk.path = disk.is_there() ? "simulated" : "";
  disk.scrub_rate = 0;
  return options;
}

}  // namespace cairn::cli
