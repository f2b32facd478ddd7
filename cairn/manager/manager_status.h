// ManagerStatus: what an operator sees of a manager at a moment. Plain values; no two of them are of one instant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/offload/offload_edge.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/disk_scrub.h"
#include "cairn/tier/link_meter.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

// Something that an operator should know of.
struct Incident {
  enum class Kind : std::uint8_t {
    kTierOut,
    kTierBack,
    kWrongBytes,
    kStartedUnclean,
    kDamagedEntries,
    kDamagedFile,
    kStopGivenUp
  };
  TimePoint when{};
  Kind kind = Kind::kTierOut;
  CacheLevel level = CacheLevel::kG1;
  std::string text = {};  // what happened, to what
};
[[nodiscard]] std::string_view to_string(Incident::Kind kind);

struct TierStatus {
  CacheLevel level = CacheLevel::kG1;
  std::string place = {};  // for people: "pinned memory", "file /nvme/cache"
  std::uint64_t block_bytes = 0;
  PoolCounts counts = {};  // all 0 where the engine manages the tier
  PoolStats stats = {};
  std::uint32_t withheld = 0;     // blocks that a resize has taken out of use
  std::uint32_t to_withhold = 0;  // and those that are still in use
  TierHealth::Report reading = {};
  TierHealth::Report writing = {};
  Tier::Recovered recovered = {};  // of a disk
  std::size_t metadata_bytes = 0;
};

struct EdgeStatus {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG2;
  bool is_paused = false;
  LinkTotals totals = {};
  double bytes_per_second = 0;  // of late
  std::string executor = {};    // how it works here
};

struct OffloadEdgeStatus {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG2;
  OffloadStatus offload = {};
};

struct ManagerStatus {
  std::uint64_t worker_id = 0;
  Duration uptime = Duration::zero();
  std::vector<TierStatus> tiers = {};
  std::vector<EdgeStatus> edges = {};
  std::vector<OffloadEdgeStatus> offload = {};
  OnboardStatus onboard = {};
  std::optional<ScrubStatus> scrub = {};  // of the disk tier, if disk.scrub_rate is given
  std::vector<Incident> incidents = {};   // the last ones, oldest first
  std::uint64_t incident_count = 0;
};

// Of one tier, but for what a resize withholds; of one edge.
[[nodiscard]] TierStatus tier_status(const Tier& tier);
[[nodiscard]] EdgeStatus edge_status(const TierLink& link);

}  // namespace cairn
