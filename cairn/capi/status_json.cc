#include "cairn/capi/status_json.h"

#include <chrono>
#include <cmath>
#include <string>

#include "cairn/base/json_writer.h"

namespace cairn::capi {

namespace {

void write(JsonWriter& json, const char* name, const TierHealthReport& health) {
  json.begin_object(name);
  json.field("is_up", health.is_up);
  json.field("reason", health.reason);
  json.end_object();
}

void write(JsonWriter& json, const TierStatus& tier) {
  json.begin_object();
  json.field("level", to_string(tier.level));
  json.field("place", tier.place);
  json.field("path", tier.path);
  json.field("block_bytes", tier.block_bytes);
  json.field("blocks", tier.counts.total);
  json.field("free", tier.counts.free);
  json.field("registered", tier.counts.registered);
  json.field("in_use", tier.counts.active);
  json.field("recovered", tier.recovered.blocks);
  json.field("damaged", tier.recovered.damaged + tier.recovered.cut_off);
  json.field("file_damage", tier.recovered.damage);
  write(json, "reading", tier.reading);
  write(json, "writing", tier.writing);
  json.end_object();
}

void write(JsonWriter& json, const LinkStatus& link) {
  json.begin_object();
  json.field("from", to_string(link.from));
  json.field("to", to_string(link.to));
  json.field("is_paused", link.is_paused);
  json.field("done", link.totals.blocks);
  json.field("failed", link.totals.failed);
  json.field("mismatched", link.totals.mismatched);
  json.field("expired", link.totals.expired);
  json.field("cancelled", link.totals.cancelled);
  json.field("bytes", link.totals.bytes);
  json.field("bytes_per_second", link.bytes_per_second, 6);
  json.field("executor", link.executor);
  json.field("pinned_bytes_per_second", link.pinned_bytes_per_second, 6);
  json.end_object();
}

void write(JsonWriter& json, const OffloadStatus& offload) {
  json.begin_object();
  json.field("from", to_string(offload.from));
  json.field("to", to_string(offload.to));
  json.field("offered", offload.offered);
  json.field("copied", offload.copied);
  json.field("pending", offload.pending);
  json.field("in_flight", offload.in_flight);
  json.begin_object("refused");
  for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
    json.field(to_string(static_cast<OffloadRefusal>(i)), offload.refused[i]);
  }
  json.end_object();
  json.field("filter_calls", offload.filter_calls);
  json.field("filter_overruns", offload.filter_overruns);
  json.field("filter_failures", offload.filter_failures);
  json.field("filter_bypassed", offload.is_filter_bypassed);
  json.end_object();
}

void write(JsonWriter& json, const Incident& incident) {
  json.begin_object();
  json.field("kind", to_string(incident.kind));
  json.field("level", to_string(incident.level));
  json.field("text", incident.text);
  json.end_object();
}

template <typename Items>
void write_all(JsonWriter& json, const char* name, const Items& items) {
  json.begin_array(name);
  for (const auto& item : items) {
    write(json, item);
  }
  json.end_array();
}

void write(JsonWriter& json, const OnboardStatus& onboard) {
  json.begin_object("onboard");
  json.field("loads", onboard.loads);
  json.field("finished", onboard.finished);
  json.field("refused", onboard.refused);
  json.field("joined", onboard.joined);
  json.field("not_worth_it", onboard.not_worth_it);
  json.field("expired", onboard.expired);
  json.field("misses", onboard.misses);
  json.begin_object("hits");
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
    json.field(to_string(level), onboard.hits[index_of(level)]);
  }
  json.end_object();
  json.end_object();
}

void write(JsonWriter& json, const PrefillStatus& prefill) {
  json.begin_object("prefill");
  json.field("source", to_string(prefill.source));
  json.field("iterations", prefill.iterations);
  json.field("tokens_per_second", prefill.tokens_per_second, 6);
  json.field("tokens_per_second_at_32k", prefill.tokens_per_second_at_32k, 6);
  json.field("seconds_per_iteration", prefill.seconds_per_iteration, 6);
  // 0: prompts are not cut, or nothing is known.
  json.field("tokens_per_iteration", std::isfinite(prefill.tokens_per_iteration) ? prefill.tokens_per_iteration : 0, 6);
  json.end_object();
}

void write(JsonWriter& json, const ScrubStatus& scrub) {
  json.begin_object("scrub");
  json.field("bytes", scrub.bytes);
  json.field("blocks", scrub.blocks);
  json.field("damaged", scrub.damaged);
  json.field("unreadable", scrub.unreadable);
  json.field("passes", scrub.passes);
  json.field("position", scrub.position);
  json.end_object();
}

void write(JsonWriter& json, const TokenCounts& counts) {
  for (const auto& [name, count] : kTokenCounts) {
    json.field(name, counts.*count);
  }
  json.field("hit_rate", counts.hit_rate(), 6);
}

void write(JsonWriter& json, const TokenReport& tokens) {
  const auto write_one = [&json](const char* name, const TokenCounts& counts) {
    json.begin_object(name);
    write(json, counts);
    json.end_object();
  };
  json.begin_object("tokens");
  write_one("total", tokens.total);
  write_one("last_requests", tokens.last_requests);
  write_one("last_time", tokens.last_time);
  json.begin_array("tenants");
  for (const TokenReport::Tenant& tenant : tokens.tenants) {
    json.begin_object();
    json.field("name", tenant.name);
    write(json, tenant.total);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write(JsonWriter& json, const EventStreamStatus& events) {
  json.begin_object("events");
  json.field("endpoint", events.published.endpoint);
  json.field("replay_endpoint", events.published.replay_endpoint);
  json.field("first_sequence", events.published.first_sequence);
  json.field("next_sequence", events.published.next_sequence);
  json.field("events", events.published.events);
  json.field("bytes", events.published.bytes);
  json.field("replays", events.published.replays);
  json.field("snapshots", events.published.snapshots);
  json.field("refused_replays", events.published.refused_replays);
  json.field("blocks", events.blocks.blocks);
  json.field("announced_blocks", events.blocks.announced);
  json.field("waiting_blocks", events.blocks.waiting);
  json.field("log_snapshots", events.snapshots);
  json.field("engine_batches", events.engine.batches);
  json.field("engine_lost", events.engine.lost + events.engine.invalid);
  json.field("engine_restarts", events.engine.restarts);
  json.field("engine_unnamed_blocks", events.unnamed);
  json.end_object();
}

}  // namespace

std::string status_as_json(const ManagerStatus& status) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.field("worker_id", status.worker_id);
  json.field("dp_rank", status.dp_rank.value_or(0));
  json.field("uptime_seconds", std::chrono::duration<double>(status.uptime).count(), 6);
  write_all(json, "tiers", status.tiers);
  write_all(json, "links", status.links);
  write_all(json, "offload", status.offload);
  write(json, status.onboard);
  write(json, status.prefill);
  if (status.scrub) {
    write(json, *status.scrub);
  }
  write_all(json, "incidents", status.incidents);
  json.field("incident_count", status.incident_count);
  if (status.tokens) {
    write(json, *status.tokens);
  }
  if (status.events) {
    write(json, *status.events);
  }
  json.end_object();
  return out;
}

}  // namespace cairn::capi
