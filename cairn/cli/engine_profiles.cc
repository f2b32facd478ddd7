#include "cairn/cli/engine_profiles.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/manager/config_values.h"

namespace cairn::cli {

namespace {

// Prefill of a model in the shape of Qwen3-8B on one H200 (PCIe Gen5 x16, CUDA 13.0), and copies that are staged and checked, were
// measured there; an H100 has the same multiprocessors. Decode steps are derived: weights and KV are read once, at 80 % of the memory
// bandwidth in the data sheet (4.8 TB/s, H100 3.35 TB/s). Of the 70 B model everything is derived from the 8 B one: 8.6 times the
// weights, 4.4 times the attention, four GPUs at 85 % efficiency. Memory for KV: 90 % of the GPU without weights and 4 GB.
constexpr const char* kPrompt8B =
    "prompt,1024,35.4\n"
    "prompt,4096,133\n"
    "prompt,8192,275\n"
    "prompt,16384,635\n"
    "prompt,32768,1493\n"
    "prompt,65536,4041\n"
    "prompt,131072,12810\n";
constexpr const char* kPrompt70BOn4 =
    "prompt,1024,83.3\n"
    "prompt,4096,322\n"
    "prompt,8192,655\n"
    "prompt,16384,1422\n"
    "prompt,32768,3136\n"
    "prompt,65536,7656\n"
    "prompt,131072,21505\n";

bool read_rate(std::string_view text, double& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= 0 && out <= 1e6;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

bool set_key(std::string_view key, std::string_view value, EngineProfile& profile) {
  if (key == "kv_bytes" || key == "device_size") {
    const std::optional<std::uint64_t> bytes = parse_size(value);
    (key == "kv_bytes" ? profile.kv_bytes : profile.device_size) = bytes.value_or(0);
    return bytes.has_value() && *bytes > 0;
  }
  if (key == "host" || key == "disk") {
    return read_link_rate(value, key == "host" ? profile.host : profile.disk);
  }
  return false;
}

Result<EngineProfile> read_engine(const std::string& path) {
  std::ifstream file(path);
  EngineProfile profile{.name = path, .note = "from a file"};
  std::string line;
  for (std::uint64_t number = 1; std::getline(file, line); ++number) {
    const std::string_view text = trimmed(line);
    if (const std::size_t equals = text.find('='); equals != std::string_view::npos && text.front() != '#') {
      if (!set_key(trimmed(text.substr(0, equals)), trimmed(text.substr(equals + 1)), profile)) {
        return fail(ErrorCode::kCorrupt,
                    str_cat("--engine: ", path, ", line ", number, ": '", text.substr(0, 60),
                            "' is no setting; write kv_bytes = BYTES, device_size = SIZE, host = GBPS or disk = GBPS"));
      }
      line.clear();  // the costs keep their line numbers
    }
    profile.costs += line + "\n";
  }
  if (const Result<sim::CostModel> costs = sim::CostModel::parse(profile.costs); !costs) {
    return fail(costs.error().code, str_cat("--engine: ", path, ", ", costs.error().message));
  }
  if (profile.kv_bytes == 0 || profile.device_size == 0) {
    return fail(ErrorCode::kCorrupt, str_cat("--engine: ", path, " has no kv_bytes or no device_size; give both"));
  }
  return profile;
}

}  // namespace

std::span<const EngineProfile> engine_profiles() {
  static const std::vector<EngineProfile> kProfiles = {
      {.name = "h100-8b",
       .note = "one H100 SXM, 8 B parameters in bf16 (prefill as measured on H200, decode derived)",
       .costs = str_cat(kPrompt8B, "decode,0,6.1\ndecode,1000000,61.1\n"),
       .kv_bytes = kDefaultKvBytes,
       .device_size = 51'000'000'000,
       .host = {54.7, 54.8},
       .disk = {2.1, 3.7}},
      {.name = "h200-8b",
       .note = "one H200, 8 B parameters in bf16 (prefill and links measured, decode derived)",
       .costs = str_cat(kPrompt8B, "decode,0,4.3\ndecode,1000000,42.7\n"),
       .kv_bytes = kDefaultKvBytes,
       .device_size = 106'000'000'000,
       .host = {54.7, 54.8},
       .disk = {2.1, 3.7}},
      {.name = "h200-70b-tp4",
       .note = "four H200, 70 B parameters in bf16 (derived from h200-8b)",
       .costs = str_cat(kPrompt70BOn4, "decode,0,9.2\ndecode,1000000,30.5\n"),
       .kv_bytes = 327'680,
       .device_size = 350'000'000'000,
       .host = {4 * 54.7, 4 * 54.8},
       .disk = {2.1, 3.7}},
  };
  return kProfiles;
}

bool read_link_rate(std::string_view text, LinkRate& rate) {
  const std::size_t slash = text.find('/');
  if (!read_rate(text.substr(0, slash), rate.down)) {
    return false;
  }
  rate.up = rate.down;
  return slash == std::string_view::npos || read_rate(text.substr(slash + 1), rate.up);
}

Result<EngineProfile> find_engine(std::string_view name) {
  const std::span<const EngineProfile> all = engine_profiles();
  if (const auto found = std::ranges::find(all, name, &EngineProfile::name); found != all.end()) {
    return *found;
  }
  if (std::ifstream(std::string(name)).good()) {
    return read_engine(std::string(name));
  }
  std::string names;
  for (const EngineProfile& profile : all) {
    names += str_cat(profile.name, ", ");
  }
  return fail(ErrorCode::kNotFound, str_cat("unknown engine '", name, "' (expected ", names, "or a file)"));
}

}  // namespace cairn::cli
