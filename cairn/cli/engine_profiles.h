// EngineProfile: a GPU with a model on it, as `cairn replay --engine` simulates it: how long it computes, how many bytes of KV a
// token has, how much memory is left for them, and how fast its links are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "cairn/base/result.h"
#include "cairn/sim/engine_options.h"

namespace cairn::cli {

// GB per second, into a tier and out of it.
struct LinkRate {
  double down = 0;
  double up = 0;
};

struct EngineProfile {
  std::string name = {};
  std::string note = {};          // for --help: what it is, and where the figures come from
  std::string costs = {};         // points, as in `cairn replay --costs`
  std::uint64_t kv_bytes = 0;     // per token, of all GPUs of the engine together
  std::uint64_t device_size = 0;  // bytes for KV, of all GPUs of the engine together
  LinkRate host = {};
  LinkRate disk = {};
};

// KV bytes of a token if nothing else says it: of a model with 8 billion parameters.
inline constexpr std::uint64_t kDefaultKvBytes = 147'456;

[[nodiscard]] std::span<const EngineProfile> engine_profiles();
// A built-in profile, or else the file of that path:
//
//   # any text
//   kv_bytes = 147456
//   device_size = 100GB
//   host = 55.2/55.3        GB per second into the tier and out of it
//   disk = 2.1/3.7
//   prompt,1024,35.4        points, as in --costs
//   decode,0,5.0
//
// kNotFound if there is neither.
[[nodiscard]] Result<EngineProfile> find_engine(std::string_view name);
// "50", or "2.1/3.7": into the tier and out of it. 0 for no limit.
[[nodiscard]] bool read_link_rate(std::string_view text, LinkRate& rate);

}  // namespace cairn::cli
