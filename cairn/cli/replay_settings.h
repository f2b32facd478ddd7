// ReplaySettings: the options of `cairn replay` that affect the report, as the user gives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/sim/replay.h"

namespace cairn::cli {

struct ReplaySettings {
  std::uint32_t workers = 1;
  std::uint32_t block_size = 64;
  std::uint32_t blocks = 16'384;  // of each worker
  std::uint32_t host_blocks = 0;  // per worker; 0 for no host tier
  std::uint32_t disk_blocks = 0;  // per worker; 0 for no disk tier
  double host_gbps = 50;          // between the tier and the one above, in each direction; 0 for no limit
  double disk_gbps = 3.5;
  std::uint64_t kv_bytes = 147'456;  // per token, of a model with 8 billion parameters
  std::string policy = "lineage";
  std::string placement = "round-robin";
  std::string profile = "strict";
  double speedup = 1;
  std::uint32_t concurrency = 0;
  std::uint32_t max_seqs = 256;
  std::uint32_t batch_tokens = 8'192;
  bool chunked_prefill = true;
  bool prefix_caching = true;
  std::string costs = {};  // file with measured compute times
};

// Sets the bandwidth to a tier, in GB per second: "host=50", "disk=3.5".
[[nodiscard]] Status set_bandwidth(std::string_view tier, ReplaySettings& settings);

// Sets the option of this name: ("blocks", "4096").
[[nodiscard]] Status set_by_name(std::string_view key, std::string_view value, ReplaySettings& settings);

// One of `settings` for each value in "KEY=V1,V2,...".
struct NamedSettings {
  std::string name;  // "blocks=4096"
  ReplaySettings settings;
};
[[nodiscard]] Result<std::vector<NamedSettings>> vary(const ReplaySettings& settings, std::string_view compare);

// The options of the replay. Reads the file of compute times.
[[nodiscard]] Result<sim::ReplayOptions> to_options(const ReplaySettings& settings);

}  // namespace cairn::cli
