// Manager.status(): what a manager holds and does, as a Record.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <string>

#include "cairn/manager/manager_status.h"
#include "python/src/duration.h"
#include "python/src/managers.h"

namespace cairn::python {

namespace {

nb::dict dict_of(const TierHealthReport& health) {
  nb::dict all;
  all["is_up"] = health.is_up;
  all["failures"] = health.failures;
  all["times_out"] = health.times_out;
  all["reason"] = health.reason;
  return all;
}

nb::dict dict_of(const TierStatus& tier) {
  nb::dict all;
  all["tier"] = to_string(tier.level);
  all["place"] = tier.place;
  all["path"] = tier.path;
  all["block_bytes"] = tier.block_bytes;
  all["blocks"] = tier.counts.total;
  all["free"] = tier.counts.free;
  all["registered"] = tier.counts.registered;
  all["in_use"] = tier.counts.active;
  all["inactive"] = tier.counts.inactive;
  all["quarantined"] = tier.counts.quarantined;
  all["evicted"] = tier.stats.evicted;
  all["lookups"] = tier.stats.lookups;
  all["hits"] = tier.stats.hits;
  all["withheld"] = tier.withheld;
  all["to_withhold"] = tier.to_withhold;
  all["recovered"] = tier.recovered.blocks;
  all["damaged"] = tier.recovered.damaged + tier.recovered.cut_off;
  all["file_damage"] = tier.recovered.damage;
  all["metadata_bytes"] = tier.metadata_bytes;
  all["reading"] = dict_of(tier.reading);
  all["writing"] = dict_of(tier.writing);
  return all;
}

nb::dict dict_of(const LinkStatus& link) {
  nb::dict all;
  all["above"] = to_string(link.from);
  all["below"] = to_string(link.to);
  all["is_paused"] = link.is_paused;
  all["executor"] = link.executor;
  all["blocks"] = link.totals.blocks;
  all["bytes"] = link.totals.bytes;
  all["failed"] = link.totals.failed;
  all["mismatched"] = link.totals.mismatched;
  all["expired"] = link.totals.expired;
  all["cancelled"] = link.totals.cancelled;
  all["blocks_in_flight"] = link.totals.blocks_in_flight;
  all["bytes_per_second"] = link.bytes_per_second;
  all["pinned_bytes_per_second"] = link.pinned_bytes_per_second;
  return all;
}

nb::dict dict_of(const OffloadStatus& offload) {
  nb::dict all;
  all["above"] = to_string(offload.from);
  all["below"] = to_string(offload.to);
  all["mode"] = std::string(to_string(offload.mode));
  all["is_paused"] = offload.is_paused;
  all["offered"] = offload.offered;
  all["copied"] = offload.copied;
  all["pending"] = offload.pending;
  all["in_flight"] = offload.in_flight;
  nb::dict refused;
  for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
    refused[std::string(to_string(static_cast<OffloadRefusal>(i))).c_str()] = offload.refused[i];
  }
  all["refused"] = refused;
  return all;
}

nb::dict dict_of(const Incident& incident) {
  nb::dict all;
  all["kind"] = std::string(to_string(incident.kind));
  all["tier"] = to_string(incident.level);
  all["text"] = incident.text;
  return all;
}

nb::dict dict_of(const OnboardStatus& onboard) {
  nb::dict all;
  all["loads"] = onboard.loads;
  all["finished"] = onboard.finished;
  all["refused"] = onboard.refused;
  all["joined"] = onboard.joined;
  all["not_worth_it"] = onboard.not_worth_it;
  all["expired"] = onboard.expired;
  all["misses"] = onboard.misses;
  nb::dict hits;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
    hits[name_of(level)] = onboard.hits[index_of(level)];
  }
  all["hits"] = hits;
  return all;
}

nb::dict dict_of(const PrefillStatus& prefill) {
  nb::dict all;
  all["source"] = to_string(prefill.source);
  all["iterations"] = prefill.iterations;
  all["tokens_per_second"] = prefill.tokens_per_second;
  all["tokens_per_second_at_32k"] = prefill.tokens_per_second_at_32k;
  all["seconds_per_iteration"] = prefill.seconds_per_iteration;
  // None: prompts are not cut, or nothing is known.
  all["tokens_per_iteration"] = std::isfinite(prefill.tokens_per_iteration) && prefill.tokens_per_iteration > 0
                                    ? nb::cast(prefill.tokens_per_iteration)
                                    : nb::none();
  return all;
}

nb::dict dict_of(const ScrubStatus& scrub) {
  nb::dict all;
  all["bytes"] = scrub.bytes;
  all["blocks"] = scrub.blocks;
  all["damaged"] = scrub.damaged;
  all["unreadable"] = scrub.unreadable;
  all["passes"] = scrub.passes;
  all["position"] = scrub.position;
  return all;
}

nb::dict dict_of(const EventStreamStatus& events) {
  nb::dict all;
  all["endpoint"] = events.published.endpoint;
  all["replay_endpoint"] = events.published.replay_endpoint;
  all["first_sequence"] = events.published.first_sequence;
  all["next_sequence"] = events.published.next_sequence;
  all["events"] = events.published.events;
  all["replays"] = events.published.replays;
  all["snapshots"] = events.published.snapshots;
  all["announced_blocks"] = events.blocks.announced;
  all["waiting_blocks"] = events.blocks.waiting;
  all["engine_batches"] = events.engine.batches;
  all["engine_lost"] = events.engine.lost + events.engine.invalid;
  all["engine_restarts"] = events.engine.restarts;
  return all;
}

template <typename Items>
nb::list list_of(const Items& items) {
  nb::list all;
  for (const auto& item : items) {
    all.append(dict_of(item));
  }
  return all;
}

}  // namespace

nb::dict dict_of(const TokenReport& tokens) {
  nb::dict all;
  all["total"] = dict_of(tokens.total);
  all["last_requests"] = dict_of(tokens.last_requests);
  all["last_time"] = dict_of(tokens.last_time);
  nb::dict tenants;
  for (const TokenReport::Tenant& tenant : tokens.tenants) {
    tenants[tenant.name.c_str()] = dict_of(tenant.total);
  }
  all["tenants"] = tenants;
  return all;
}

void bind_status(nb::module_& module) {
  auto manager = nb::borrow<nb::class_<Manager>>(module.attr("Manager"));
  manager.def(
      "status",
      [](const Manager& self) {
        const ManagerPtr owner = self.use();
        const ManagerStatus status = [&] {
          const GilRelease released;
          return owner->manager.status();
        }();
        nb::dict all;
        all["worker_id"] = status.worker_id;
        all["dp_rank"] = status.dp_rank;
        all["uptime"] = seconds_of(status.uptime);
        all["tiers"] = list_of(status.tiers);
        all["links"] = list_of(status.links);
        all["offload"] = list_of(status.offload);
        all["onboard"] = dict_of(status.onboard);
        all["prefill"] = dict_of(status.prefill);
        all["scrub"] = status.scrub ? nb::object(dict_of(*status.scrub)) : nb::none();
        all["incidents"] = list_of(status.incidents);
        all["incident_count"] = status.incident_count;
        all["tokens"] = status.tokens ? nb::object(dict_of(*status.tokens)) : nb::none();
        all["events"] = status.events ? nb::object(dict_of(*status.events)) : nb::none();
        return as_record(all);
      },
      nb::sig("def status(self) -> cairn._record.Record"),
      "What every tier holds, what every link has copied and how fast, and the latest incidents.");
}

}  // namespace cairn::python
