// BlockFootprint: how many bytes a block takes on all ranks of an engine together, so that host.size and disk.size are what the
// ranks use in all.
//
// Ranks that hold the same part of each block (replicas: MLA, fewer KV heads than tensor ranks) keep it once if they are on the
// leader's machine. Over TCP each of them keeps a copy, and all copies count.
//
// Thread safety: pure.
// Errors:        heads that the tensor ranks cannot share, a model with fewer layers than pipeline stages.
#pragma once

#include <cstdint>

#include "cairn/base/result.h"
#include "cairn/manager/manager_config.h"
#include "cairn/manager/tier_memory.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

struct BlockFootprint {
  std::uint64_t host_bytes = 0;
  DiskFootprint disk = {};  // the leader's file included
  friend bool operator==(const BlockFootprint&, const BlockFootprint&) = default;
};

// What tiers may take on all ranks together, in bytes; 0: no limit.
struct TierSizes {
  std::uint64_t host = 0;
  std::uint64_t disk = 0;
};

// Counts layers as if they were dealt evenly to the pipeline stages: another split differs by the alignment of blocks at most.
[[nodiscard]] Result<BlockFootprint> footprint_of(const ManagerConfig& config, const LeaderOptions& options);

// Whether replicas keep their blocks together: all ranks are on this machine.
[[nodiscard]] bool shares_memory(const LeaderOptions& options);

}  // namespace cairn
