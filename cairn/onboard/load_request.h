// LoadRequest: a prefix that is to be loaded to the device, and its LoadOutcome.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/pool/blocks.h"
#include "cairn/tokens/block_key.h"

namespace cairn {

// Names a load of one Onboarder. Ids are never reused.
enum class LoadId : std::uint64_t {};

// Where each key of a list is now; the nearest tier if it is in several.
struct PrefixLocation {
  std::vector<CacheLevel> levels;  // of the longest prefix that is in tiers that can be read
  [[nodiscard]] std::uint32_t blocks() const { return static_cast<std::uint32_t>(levels.size()); }
};

struct LoadOutcome {
  ImmutableBlocks blocks;    // of the device: the longest prefix; empty if blocks of the engine were filled
  std::uint32_t prefix = 0;  // number of blocks, from the first key on, that are on the device now
  std::array<std::uint32_t, kCacheLevels> from = {};  // of those, by the tier they were found in
  std::uint32_t not_worth_it = 0;                     // blocks that are faster to compute
  std::string why = {};                               // why the prefix is shorter than what was to be loaded
};

struct LoadRequest {
  std::vector<BlockKey> keys = {};
  std::optional<TimePoint> deadline = {};  // std::nullopt: OnboardOptions::deadline from now
  std::uint32_t most = 0;                  // blocks to load at most; 0 for any number
  bool weigh = true;                       // whether to ask the cost model
  std::function<void(LoadOutcome&&)> done = {};
};

struct OnboardStatus {
  std::uint32_t loads = 0;                            // in flight
  std::uint64_t finished = 0;                         // loads
  std::uint64_t refused = 0;                          // loads: too many were in flight
  std::uint64_t joined = 0;                           // blocks that another load was already bringing
  std::uint64_t not_worth_it = 0;                     // blocks
  std::uint64_t expired = 0;                          // loads that ended by their deadline
  std::array<std::uint64_t, kCacheLevels> hits = {};  // blocks found, by tier
  std::uint64_t misses = 0;                           // blocks found in no tier
};

}  // namespace cairn
