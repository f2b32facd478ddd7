#include "cairn/cli/replay_settings.h"

#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {
namespace {

template <typename Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_bandwidth(std::string_view text, double& out) { return read_number(text, out) && out >= 0 && out <= 1e6; }

bool read_switch(std::string_view text, bool& out) {
  out = text == "on";
  return text == "on" || text == "off";
}

Result<sim::CostModel> read_costs(const std::string& path) {
  if (path.empty()) {
    return sim::CostModel::polynomial();
  }
  std::ifstream file(path);
  if (!file) {
    return fail(ErrorCode::kNotFound, str_cat("--costs: cannot open ", path));
  }
  const std::string csv{std::istreambuf_iterator<char>(file), {}};
  Result<sim::CostModel> costs = sim::CostModel::parse(csv);
  if (!costs) {
    return fail(costs.error().code, str_cat("--costs: ", path, ", ", costs.error().message));
  }
  return costs;
}

Status check(const ReplaySettings& settings) {
  const auto at_least = [](std::string_view option, std::uint32_t value, std::uint32_t least) -> Status {
    if (value >= least) {
      return {};
    }
    return fail(ErrorCode::kInvalidArgument, str_cat("--", option, " is ", value, "; give at least ", least));
  };
  for (const auto& [option, value, least] : {std::tuple{"workers", settings.workers, 1U},
                                             {"blocks", settings.blocks, 1U},
                                             {"block-size", settings.block_size, 2U},
                                             {"max-seqs", settings.max_seqs, 1U},
                                             {"batch-tokens", settings.batch_tokens, 1U}}) {
    CAIRN_TRY(at_least(option, value, least));
  }
  return {};
}

}  // namespace

Status set_bandwidth(std::string_view tier, ReplaySettings& settings) {
  const std::size_t equals = tier.find('=');
  const std::string_view name = tier.substr(0, equals);
  const std::string_view rate = equals == std::string_view::npos ? std::string_view() : tier.substr(equals + 1);
  if (name == "host" || name == "disk") {
    if (read_bandwidth(rate, name == "host" ? settings.host_gbps : settings.disk_gbps)) {
      return {};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat("--bandwidth ", tier, ": write host=GBPS or disk=GBPS, as in host=50 or disk=3.5"));
}

Status set_by_name(std::string_view key, std::string_view value, ReplaySettings& settings) {
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
      {"block-size", [&] { return read_number(value, settings.block_size); }},
      {"blocks", [&] { return read_number(value, settings.blocks); }},
      {"host-blocks", [&] { return read_number(value, settings.host_blocks); }},
      {"disk-blocks", [&] { return read_number(value, settings.disk_blocks); }},
      {"host-bandwidth", [&] { return read_bandwidth(value, settings.host_gbps); }},
      {"disk-bandwidth", [&] { return read_bandwidth(value, settings.disk_gbps); }},
      {"kv-bytes", [&] { return read_number(value, settings.kv_bytes); }},
      {"policy", [&] { return set_text(settings.policy); }},
      {"placement", [&] { return set_text(settings.placement); }},
      {"profile", [&] { return set_text(settings.profile); }},
      {"speedup", [&] { return read_number(value, settings.speedup); }},
      {"concurrency", [&] { return read_number(value, settings.concurrency); }},
      {"max-seqs", [&] { return read_number(value, settings.max_seqs); }},
      {"batch-tokens", [&] { return read_number(value, settings.batch_tokens); }},
      {"chunked-prefill", [&] { return read_switch(value, settings.chunked_prefill); }},
      {"prefix-caching", [&] { return read_switch(value, settings.prefix_caching); }},
      {"costs", [&] { return set_text(settings.costs); }},
  };
  std::string names;
  for (const Setting& setting : known) {
    if (setting.name != key) {
      names += str_cat(names.empty() ? "" : ", ", setting.name);
    } else if (!setting.set()) {
      return fail(ErrorCode::kInvalidArgument, str_cat("invalid value '", value, "' for ", key));
    } else {
      return {};
    }
  }
  return fail(ErrorCode::kInvalidArgument, str_cat("unknown option '", key, "' (expected ", names, ")"));
}

Result<std::vector<NamedSettings>> vary(const ReplaySettings& settings, std::string_view compare) {
  const std::size_t equals = compare.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("--compare ", compare, ": expected KEY=V1,V2,..., such as blocks=4096,16384"));
  }
  const std::string_view key = compare.substr(0, equals);
  std::string_view rest = compare.substr(equals + 1);
  std::vector<NamedSettings> all;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view value = rest.substr(0, comma);
    NamedSettings one{.name = str_cat(key, "=", value), .settings = settings};
    if (Status set = set_by_name(key, value, one.settings); !set) {
      return fail(set.error().code, str_cat("--compare: ", set.error().message));
    }
    all.push_back(std::move(one));
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

Result<sim::ReplayOptions> to_options(const ReplaySettings& settings) {
  CAIRN_TRY(check(settings));
  const std::optional<PolicyKind> policy = parse_policy(settings.policy);
  if (!policy) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown policy '", settings.policy, "' (expected ", policy_names(), ")"));
  }
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
  CAIRN_TRY_ASSIGN(sim::CostModel costs, read_costs(settings.costs));
  CAIRN_TRY_ASSIGN(sim::CostModel scaled, costs.with_speedup(settings.speedup));
  std::vector<sim::ReplayTier> tiers;
  if (settings.host_blocks > 0) {
    tiers.push_back({.level = CacheLevel::kG2, .blocks = settings.host_blocks, .gigabytes_per_s = settings.host_gbps});
  }
  if (settings.disk_blocks > 0) {
    tiers.push_back({.level = CacheLevel::kG3, .blocks = settings.disk_blocks, .gigabytes_per_s = settings.disk_gbps});
  }
  return sim::ReplayOptions{.engine = {.blocks = settings.blocks,
                                       .block_size = settings.block_size,
                                       .eviction = *policy,
                                       .profile = *profile,
                                       .max_num_seqs = settings.max_seqs,
                                       .max_num_batched_tokens = settings.batch_tokens,
                                       .chunked_prefill = settings.chunked_prefill,
                                       .prefix_caching = settings.prefix_caching,
                                       .costs = std::move(scaled)},
                            .workers = settings.workers,
                            .tiers = std::move(tiers),
                            .block_bytes = settings.kv_bytes * settings.block_size,
                            .placement = *placement,
                            .concurrency = settings.concurrency};
}

}  // namespace cairn::cli
