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

std::string_view advice(Incident::Kind kind) {
  switch (kind) {
    case Incident::Kind::kTierOut:
      return "Look for errors of the device in the kernel's log (dmesg) and check that the disk is not full. Requests "
             "go on without the tier, and it is tried again by itself.";
    case Incident::Kind::kTierBack:
      return "Nothing to do: the tier is in use again.";
    case Incident::Kind::kWrongBytes:
      return "The blocks were dropped and nothing wrong was served. If it happens again, check memory and disk of the "
             "machine, and set disk.scrub_rate to find damaged blocks early.";
    case Incident::Kind::kStartedUnclean:
      return "The last process did not shut down in order. Blocks that were verified are kept; give the process time "
             "to stop (SIGTERM, and more than twice `shutdown` before SIGKILL).";
    case Incident::Kind::kDamagedEntries:
      return "The damaged entries were dropped and the rest of the file is used. Check the disk (smartctl) and the "
             "file "
             "system.";
    case Incident::Kind::kDamagedFile:
      return "The tier started with what was intact, or empty. Keep the renamed file only if somebody wants to look at "
             "it, and check the disk.";
    case Incident::Kind::kNotReserved:
      return "The file system did not reserve the space of the file, so writes can fail when it is full. Free some "
             "space, or make disk.size smaller.";
    case Incident::Kind::kShutdownTimedOut:
      return "Copies were still in flight when the process stopped. Raise `shutdown`, or find out why the disk is "
             "slow.";
    case Incident::Kind::kOffloadFilter:
      return "Make the offload filter faster, or remove it; while it is bypassed, blocks are copied as if there were "
             "none.";
  }
  return "";
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
