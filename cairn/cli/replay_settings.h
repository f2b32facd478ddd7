// ReplaySettings: the settings of `cairn replay` that change what it finds, as a user names them.
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
  std::string policy = "lineage";
  std::string placement = "round-robin";
  std::string profile = "strict";
  double speedup = 1;
  std::uint32_t concurrency = 0;
  std::uint32_t max_seqs = 256;
  std::uint32_t batch_tokens = 8'192;
  bool chunked_prefill = true;
  bool prefix_caching = true;
  std::string costs = {};  // a file with measured points
};

// Sets one of them by the name of its option: ("blocks", "4096"). Fails on a name that is none, a value it cannot have.
[[nodiscard]] Status set_by_name(std::string_view key, std::string_view value, ReplaySettings& settings);

// One for each value of "KEY=V1,V2,...", the others as they are. Fails on a text that is not of this form.
struct NamedSettings {
  std::string name;  // "blocks=4096"
  ReplaySettings settings;
};
[[nodiscard]] Result<std::vector<NamedSettings>> vary(const ReplaySettings& settings, std::string_view compare);

// What sim/ understands. Reads the file of costs. Fails on what makes no sense, and says what would.
[[nodiscard]] Result<sim::ReplayOptions> to_options(const ReplaySettings& settings);

}  // namespace cairn::cli
