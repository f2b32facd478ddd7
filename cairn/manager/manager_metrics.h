// Metrics of a manager's parts. The values are read when the metrics are.
//
// Ownership: the metrics refer to the parts, and may not be read after the parts are destroyed.
#pragma once

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/metrics.h"
#include "cairn/cluster/remote_lookup.h"
#include "cairn/cluster/retrying_store.h"
#include "cairn/events/event_stream.h"
#include "cairn/manager/token_counter.h"
#include "cairn/offload/offloader.h"
#include "cairn/onboard/onboarder.h"
#include "cairn/onboard/prefill_meter.h"
#include "cairn/pool/block_registry.h"
#include "cairn/tier/disk_scrub.h"
#include "cairn/tier/tier.h"
#include "cairn/tier/tier_link.h"

namespace cairn {

void add_event_metrics(Metrics& metrics, const EventStream& stream);
void add_tier_metrics(Metrics& metrics, const Tier& tier);
void add_link_metrics(Metrics& metrics, TierLink& link);
void add_offload_metrics(Metrics& metrics, CacheLevel into, const Offloader& offloader);
void add_scrub_metrics(Metrics& metrics, const DiskScrub& scrub);
// Of a tier from which blocks move down.
void add_remote_metrics(Metrics& metrics, const RemoteLookup& lookup, const RetryingStore& store);
void add_loss_metrics(Metrics& metrics, CacheLevel of, const BlockRegistry& registry);
void add_prefill_metrics(Metrics& metrics, const PrefillMeter& prefill);
void add_onboard_metrics(Metrics& metrics, const Onboarder& onboarder);
void add_token_metrics(Metrics& metrics, const TokenCounter& tokens, const Clock& clock);

}  // namespace cairn
