// ReplaySettings: the options of `cairn replay` that affect the report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/cli/engine_profiles.h"
#include "cairn/manager/manager_config.h"
#include "cairn/sim/replay.h"

namespace cairn::cli {

// Dollars an hour: of a worker's GPUs while they compute, and of a GB of each tier.
struct ReplayPrices {
  double gpu = 3;
  double host = 0.004;
  double disk = 0.0001;
};

struct ReplaySettings {
  std::uint32_t workers = 1;
  ManagerConfig manager = {};  // block size and tiers of each worker; default_settings() has other defaults
  std::string engine = {};     // the name of a profile; empty: the original's polynomial
  std::uint64_t kv_bytes = 0;  // per token
  LinkRate host_rate = {.down = 50, .up = 50};
  LinkRate disk_rate = {.down = 3.5, .up = 3.5};
  Duration host_latency = std::chrono::microseconds(20);
  Duration disk_latency = std::chrono::microseconds(100);
  std::string shared_links = "none";  // none, host, disk or both: that all workers share
  std::string link_order = "fifo";    // fifo or shared
  std::vector<sim::TierFault> faults = {};
  std::string placement = "round-robin";
  std::string profile = "strict";
  double speedup = 1;
  double rate = 0;  // requests a second on average; 0: as in the trace
  std::uint32_t concurrency = 0;
  std::uint32_t max_seqs = 256;
  std::uint32_t batch_tokens = 8'192;
  bool chunked_prefill = true;
  bool prefix_caching = true;
  std::string costs = {};  // file with measured compute times
  ReplayPrices prices = {};

  [[nodiscard]] std::uint64_t block_bytes() const { return kv_bytes * manager.block_size; }
  // Blocks of a tier of one worker; 0 if there is no such tier.
  [[nodiscard]] std::uint64_t blocks_of(const TierConfig& tier) const {
    return tier.size == 0 ? tier.blocks : tier.size / block_bytes();
  }
};

// Where the settings come from. Later members override earlier ones; an `engine` among the options is applied first.
struct ReplaySources {
  std::string config = {};                // file of a manager's configuration; empty for none
  std::vector<std::string> options = {};  // "KEY=VALUE": an option of `cairn replay`, or a key of the configuration
};
// Names of options are those of the command line without dashes: "workers=8", "host-size=64GiB", "host.policy=lru". A tier of size 0
// does not exist.
[[nodiscard]] Result<ReplaySettings> read_settings(const ReplaySources& sources);

struct NamedSettings {
  std::string name;  // "blocks=4096"
  ReplaySettings settings;
};
// One for each value in "KEY=V1,V2,...".
[[nodiscard]] Result<std::vector<NamedSettings>> vary(const ReplaySources& sources, std::string_view compare);
// "GPU", "+host", "+disk" and "+both", as far as the settings have these tiers.
[[nodiscard]] Result<std::vector<NamedSettings>> scenarios(const ReplaySources& sources);

// The options of the replay. Reads the file of compute times.
[[nodiscard]] Result<sim::ReplayOptions> to_options(const ReplaySettings& settings);

}  // namespace cairn::cli
