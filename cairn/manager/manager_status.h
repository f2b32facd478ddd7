// ManagerStatus: what an operator sees of a manager. The values are read one after the other, not at one instant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/events/event_stream.h"
#include "cairn/manager/token_counts.h"
#include "cairn/offload/offload_request.h"
#include "cairn/onboard/load_request.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/tier_status.h"

namespace cairn {

class Tier;
class TierLink;

// Something that an operator should know of.
struct Incident {
  enum class Kind : std::uint8_t {
    kTierOut,
    kTierBack,
    kWrongBytes,
    kStartedUnclean,
    kDamagedEntries,
    kDamagedFile,
    kNotReserved,
    kShutdownTimedOut,
    kOffloadFilter  // the user's filter is slow, threw, is bypassed or is called again
  };
  TimePoint when{};
  Kind kind = Kind::kTierOut;
  CacheLevel level = CacheLevel::kG1;
  std::string text = {};  // what happened, and to what
};
[[nodiscard]] std::string_view to_string(Incident::Kind kind);

struct TierStatus {
  CacheLevel level = CacheLevel::kG1;
  std::string place = {};  // for people: "pinned memory", "file, direct"
  std::string path = {};   // of the disk tier's file, or the address of the store; empty for other tiers
  std::uint64_t block_bytes = 0;
  PoolCounts counts = {};  // all 0 if the engine manages the tier
  PoolStats stats = {};
  std::uint32_t withheld = 0;     // blocks that a resize has taken out of use
  std::uint32_t to_withhold = 0;  // blocks that it will take once they are released
  TierHealthReport reading = {};
  TierHealthReport writing = {};
  TierRecovered recovered = {};  // of the disk tier
  std::size_t metadata_bytes = 0;
};

struct LinkStatus {
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG2;
  bool is_paused = false;
  LinkTotals totals = {};
  double bytes_per_second = 0;  // recently
  std::string executor = {};    // how it copies, for people
  // What loads are weighed with instead, by the configuration; 0: what was measured.
  double pinned_bytes_per_second = 0;
};

struct ManagerStatus {
  std::uint64_t worker_id = 0;
  std::optional<std::uint32_t> dp_rank = {};
  Duration uptime = Duration::zero();
  std::vector<TierStatus> tiers = {};
  std::vector<LinkStatus> links = {};
  std::vector<OffloadStatus> offload = {};
  OnboardStatus onboard = {};
  PrefillStatus prefill = {};
  std::optional<ScrubStatus> scrub = {};  // of the disk tier, if disk.scrub_rate is given
  std::vector<Incident> incidents = {};   // the latest, oldest first
  std::uint64_t incident_count = 0;
  std::optional<TokenReport> tokens = {};        // of the requests of an engine, if a connector counts them
  std::optional<EventStreamStatus> events = {};  // if events.publish is given
};

// Without `path` and what a resize withholds.
[[nodiscard]] TierStatus tier_status(const Tier& tier);
[[nodiscard]] LinkStatus link_status(const TierLink& link);

}  // namespace cairn
