#include "cairn/manager/manager_status.h"

#include "cairn/base/str_cat.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

std::string_view to_string(Incident::Kind kind) {
  switch (kind) {
    case Incident::Kind::kTierOut:
      return "tier out";
    case Incident::Kind::kTierBack:
      return "tier back";
    case Incident::Kind::kWrongBytes:
      return "wrong bytes";
    case Incident::Kind::kStartedUnclean:
      return "started unclean";
    case Incident::Kind::kDamagedEntries:
      return "damaged entries";
    case Incident::Kind::kDamagedFile:
      return "damaged file";
    case Incident::Kind::kNotReserved:
      return "no space reserved";
    case Incident::Kind::kShutdownTimedOut:
      return "shutdown timed out";
    case Incident::Kind::kOffloadFilter:
      return "offload filter";
  }
  return "unknown";
}

TierStatus tier_status(const Tier& tier) {
  const Region& region = *tier.layout()->regions().front();
  TierStatus status{.level = tier.level(),
                    .place = str_cat(to_string(tier.layout()->kind()), " memory"),
                    .block_bytes = tier.block_bytes(),
                    .reading = tier.report(TierUse::kReading),
                    .writing = tier.report(TierUse::kWriting),
                    .recovered = tier.recovered()};
  if (tier.level() == CacheLevel::kG4) {
    status.place = "store";
  } else if (tier.has_file()) {
    status.place = region.is_direct() ? "file, direct" : "file";
  }
  if (!region.notes().empty()) {
    status.place += str_cat(" (", region.notes(), ")");
  }
  if (const BlockPool* const pool = tier.pool()) {
    status.counts = pool->counts();
    status.stats = pool->stats();
    status.metadata_bytes = pool->bytes();
  }
  return status;
}

LinkStatus link_status(const TierLink& link) {
  return {.from = link.from().level(),
          .to = link.to().level(),
          .is_paused = link.is_paused(),
          .totals = link.meter().totals(),
          .bytes_per_second = link.meter().bytes_per_second(),
          .executor = link.executor().describe()};
}

}  // namespace cairn
