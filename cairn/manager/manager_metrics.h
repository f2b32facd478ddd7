// What a manager's parts show of themselves, as metrics: all of it is read when the metrics are.
//
// Owner:    the metrics hold references to the parts: they are not read after the parts are gone.
#pragma once

#include "cairn/base/ids.h"
#include "cairn/base/metrics.h"
#include "cairn/offload/offload_edge.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tier/disk_scrub.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

void add_tier_metrics(Metrics& metrics, const Tier& tier);
void add_link_metrics(Metrics& metrics, TierLink& link);
void add_offload_metrics(Metrics& metrics, CacheLevel into, const OffloadEdge& edge);
void add_scrub_metrics(Metrics& metrics, const DiskScrub& scrub);
// Of a tier from which an edge leads down.
void add_loss_metrics(Metrics& metrics, CacheLevel of, const BlockRegistry& registry);
void add_onboard_metrics(Metrics& metrics, const Onboarder& onboarder);

}  // namespace cairn
