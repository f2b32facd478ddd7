// Planning of loads: from where each block of a load is and what the links cost, to which blocks are copied over which links,
// which are joined to transfers in flight, and where the load ends because computing is faster. Pure functions: they know no
// pools, threads or clocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/onboard/load_cost.h"

namespace cairn {

// The links that blocks come up by.
enum class LoadLink : std::uint8_t { kHostToDevice, kDiskToDevice, kDiskToHost, kRemoteToHost };
inline constexpr std::size_t kLoadLinks = 4;
[[nodiscard]] constexpr std::size_t index_of(LoadLink link) { return static_cast<std::size_t>(link); }

// Consecutive keys of a load that are in the same place.
struct KeyRun {
  std::uint32_t blocks = 0;
  // The nearest tier that has them and can be read; std::nullopt if there is none. Of keys that are joined: the tier that
  // they are copied from.
  std::optional<CacheLevel> tier = {};
  std::optional<CacheLevel> joined_at = {};  // set if one part of another load brings all of them to this tier
};

// Which links can be used now.
struct LoadLinks {
  bool host_to_device = false;
  bool disk_to_device = false;
  bool disk_to_host = false;
  bool remote_to_host = false;  // blocks from a store always go by way of host memory; needs host_to_device as well
  bool through_host = false;    // so do blocks from disk, and stay there

  // Whether blocks from disk reach the device.
  [[nodiscard]] bool reads_disk() const { return goes_through_host() || disk_to_device; }
  [[nodiscard]] bool goes_through_host() const { return through_host && host_to_device && disk_to_host; }
  // Whether blocks from a store do.
  [[nodiscard]] bool reads_remote() const { return host_to_device && remote_to_host; }
};

struct LinkSpeed {
  double bytes_per_second = 0;    // 0 if it is not known yet
  std::uint64_t bytes_ahead = 0;  // of a new transfer: in flight, pending, and promised
  bool is_old = false;            // it was measured so long ago that it should be measured again
};
// So much is loaded to measure a link.
inline constexpr std::uint64_t kProbeBytes = std::uint64_t{16} << 20;
[[nodiscard]] constexpr std::uint32_t probe_blocks(std::uint64_t block_bytes) {
  return block_bytes < kProbeBytes ? static_cast<std::uint32_t>(kProbeBytes / std::max<std::uint64_t>(block_bytes, 1))
                                   : 1;
}

// What loading costs, and what computing instead.
struct LoadCosts {
  const LoadCostModel* model = nullptr;  // only used for prefixes; null: everything is worth loading
  std::uint64_t block_bytes = 0;
  std::uint32_t block_size = 0;   // tokens
  std::uint32_t first_token = 0;  // of the first run
  std::uint32_t total_tokens = 0;
  bool engine_is_busy = false;
  std::uint32_t max_part_blocks = 1;  // as in LoadPlanRequest
  bool may_prefetch = false;          // an old speed of the link from disk to host is measured without this load
  std::array<LinkSpeed, kLoadLinks> speeds = {};
};

struct LoadPlanRequest {
  std::uint32_t first = 0;            // index of the first key of the runs
  bool is_prefix = true;              // the load ends at the first key that is nowhere
  bool is_prefetch = false;           // to the host, not to the device
  std::uint32_t max_blocks = 0;       // to be loaded; 0 for any number
  std::uint32_t max_part_blocks = 1;  // of a part that goes to the host
};

struct LoadPlan {
  // Consecutive keys that are treated alike.
  struct Part {
    enum class Kind : std::uint8_t {
      kPresent,  // at the destination already
      kCopied,
      kJoined,  // brought by a part of another load
    };
    std::uint32_t first = 0;  // of the load's keys
    std::uint32_t count = 0;
    CacheLevel from = CacheLevel::kG1;
    Kind kind = Kind::kPresent;
    LoadLink link = LoadLink::kHostToDevice;  // kCopied: of the first transfer
    bool through_host = false;                // kCopied: a transfer from host to device follows
    CacheLevel joined_at = CacheLevel::kG1;   // kJoined

    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Part> parts = {};    // in the order of the keys
  std::uint32_t found = 0;         // the end of the keys that are somewhere; of a load that is no prefix, of all keys
  std::uint32_t end = 0;           // of the keys that the plan covers
  std::uint32_t not_worth_it = 0;  // blocks that were found, and are faster to compute

  // Drops what is beyond this key.
  void cut(std::uint32_t at);
  // Blocks that are not present yet.
  [[nodiscard]] std::uint32_t blocks_to_bring() const;
};

[[nodiscard]] LoadPlan plan_load(const LoadPlanRequest& request, std::span<const KeyRun> runs, const LoadLinks& links,
                                 const LoadCosts& costs);

// How many blocks of these runs, from the first on, are worth loading. Every run is somewhere.
[[nodiscard]] std::uint32_t worth_loading(std::span<const KeyRun> runs, const LoadLinks& links, const LoadCosts& costs);

}  // namespace cairn
