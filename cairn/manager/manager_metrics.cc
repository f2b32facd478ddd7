#include "cairn/manager/manager_metrics.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

template <typename Stats, typename Number>
struct Figure {
  const char* name;
  const char* help;
  Number Stats::* member;
};

constexpr Figure<PoolCounts, std::uint32_t> kCounts[] = {
    {"cairn_blocks_total_capacity", "Blocks that a tier has room for", &PoolCounts::total},
    {"cairn_blocks_free", "Blocks that hold nothing", &PoolCounts::free},
    {"cairn_blocks_inactive", "Blocks that can be evicted", &PoolCounts::inactive},
    {"cairn_blocks_ready", "Of the inactive ones, those that are evicted first", &PoolCounts::ready},
    {"cairn_blocks_active", "Blocks in use", &PoolCounts::active},
    {"cairn_blocks_quarantined", "Blocks that a late copy may still touch", &PoolCounts::quarantined},
    {"cairn_blocks_registered", "Keys that can be matched", &PoolCounts::registered},
};

constexpr Figure<PoolStats, std::uint64_t> kStats[] = {
    {"cairn_allocated_total", "Blocks allocated", &PoolStats::allocated},
    {"cairn_allocation_failures_total", "Allocations refused because the pool was full",
     &PoolStats::allocation_failures},
    {"cairn_evicted_total", "Blocks evicted", &PoolStats::evicted},
    {"cairn_expired_total", "Blocks whose time to live has passed", &PoolStats::expired},
    {"cairn_reset_total", "Blocks reset", &PoolStats::reset},
    {"cairn_registered_total", "Blocks registered", &PoolStats::registered},
    {"cairn_deduplicated_total", "Late copies of a block given back", &PoolStats::deduplicated},
    {"cairn_lookups_total", "Keys looked up in a tier's pool", &PoolStats::lookups},
    {"cairn_lookup_hits_total", "Of those, found", &PoolStats::hits},
    {"cairn_abandoned_in_quarantine_total", "Blocks lost for good: nobody can say that nothing writes to them",
     &PoolStats::abandoned_in_quarantine},
};

constexpr Figure<LinkTotals, std::uint64_t> kTotals[] = {
    {"cairn_copies_total", "Copies begun", &LinkTotals::copies},
    {"cairn_copied_blocks_total", "Blocks that arrived and were verified", &LinkTotals::blocks},
    {"cairn_copied_bytes_total", "Bytes of those", &LinkTotals::bytes},
    {"cairn_copy_failures_total", "Blocks that could not be copied", &LinkTotals::failed},
    {"cairn_verification_failures_total", "Blocks whose bytes were not those they were stored with",
     &LinkTotals::mismatched},
    {"cairn_copy_expired_total", "Blocks that did not arrive by their deadline", &LinkTotals::expired},
    {"cairn_copy_cancelled_total", "Blocks whose copy was cancelled", &LinkTotals::cancelled},
};

constexpr Figure<LinkTotals, std::uint64_t> kInFlight[] = {
    {"cairn_copy_blocks_in_flight", "Blocks being copied", &LinkTotals::blocks_in_flight},
    {"cairn_copy_bytes_in_flight", "Bytes being copied", &LinkTotals::bytes_in_flight},
    {"cairn_copies_unsettled", "Copies that may still touch memory, in flight or late", &LinkTotals::unsettled},
    {"cairn_copy_blocks_quarantined", "Blocks that a late copy over a link may still touch", &LinkTotals::quarantined},
};

std::string with_dashes(std::string_view words) {
  std::string label(words);
  std::replace(label.begin(), label.end(), ' ', '_');
  return label;
}

struct TokenFigure {
  const char* name;
  const char* help;
  MetricLabels labels;
  std::uint64_t TokenCounts::* count;
};

// Counters of each tenant. What has one name adds up: cairn_prompt_tokens_total of all sources to cairn_asked_tokens_total,
// cairn_found_tokens_total to what was loaded and cairn_not_loaded_tokens_total.
std::vector<TokenFigure> token_figures() {
  constexpr const char* kPrompt = "Tokens of prompts, by where their KV came from";
  constexpr const char* kFound = "Tokens of prompts that a tier had, by the nearest tier";
  constexpr const char* kNotLoaded = "Of those, tokens that were not loaded, by reason";
  constexpr const char* kResumed = "Tokens that were on the device and lost, by where they came from afterwards";
  constexpr const char* kDropped = "Tokens that were not saved, by reason";
  return {
      {"cairn_counted_requests_total", "Requests whose prompts are counted", {}, &TokenCounts::requests},
      {"cairn_asked_tokens_total", "Tokens of prompts", {}, &TokenCounts::asked},
      {"cairn_prompt_tokens_total", kPrompt, {{"source", "device"}}, &TokenCounts::device},
      {"cairn_prompt_tokens_total", kPrompt, {{"source", "host"}}, &TokenCounts::loaded_host},
      {"cairn_prompt_tokens_total", kPrompt, {{"source", "disk"}}, &TokenCounts::loaded_disk},
      {"cairn_prompt_tokens_total", kPrompt, {{"source", "computed"}}, &TokenCounts::computed},
      {"cairn_found_tokens_total", kFound, {{"tier", to_string(CacheLevel::kG2)}}, &TokenCounts::found_host},
      {"cairn_found_tokens_total", kFound, {{"tier", to_string(CacheLevel::kG3)}}, &TokenCounts::found_disk},
      {"cairn_not_loaded_tokens_total", kNotLoaded, {{"reason", "too_slow"}}, &TokenCounts::too_slow},
      {"cairn_not_loaded_tokens_total", kNotLoaded, {{"reason", "failed"}}, &TokenCounts::failed},
      {"cairn_not_loaded_tokens_total", kNotLoaded, {{"reason", "skipped"}}, &TokenCounts::skipped},
      {"cairn_resumed_tokens_total", kResumed, {{"source", "device"}}, &TokenCounts::kept},
      {"cairn_resumed_tokens_total", kResumed, {{"source", "loaded"}}, &TokenCounts::reloaded},
      {"cairn_resumed_tokens_total", kResumed, {{"source", "recomputed"}}, &TokenCounts::recomputed},
      {"cairn_loaded_late_tokens_total", "Tokens loaded after their request had run", {}, &TokenCounts::loaded_late},
      {"cairn_saved_tokens_total", "Tokens saved to a tier", {}, &TokenCounts::saved},
      {"cairn_dropped_tokens_total", kDropped, {{"reason", "filtered"}}, &TokenCounts::dropped_filtered},
      {"cairn_dropped_tokens_total", kDropped, {{"reason", "shed"}}, &TokenCounts::dropped_shed},
      {"cairn_dropped_tokens_total", kDropped, {{"reason", "unavailable"}}, &TokenCounts::dropped_unavailable},
      {"cairn_dropped_tokens_total", kDropped, {{"reason", "failed"}}, &TokenCounts::dropped_failed},
  };
}

}  // namespace

void add_token_metrics(Metrics& metrics, const TokenCounter& tokens, const Clock& clock) {
  const std::vector<std::string>& tenants = tokens.tenants();
  for (const TokenFigure& figure : token_figures()) {
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      MetricLabels labels = figure.labels;
      if (i > 0) {
        labels.emplace_back("tenant", tenants[i]);
      }
      metrics.counter_function(figure.name, figure.help, labels,
                               [&tokens, tenant = TenantId{static_cast<std::uint8_t>(i)}, count = figure.count] {
                                 return static_cast<double>(tokens.total(tenant).*count);
                               });
    }
  }
  const auto add_window = [&metrics](const char* name, const std::function<TokenCounts()>& counts) {
    const MetricLabels labels{{"window", name}};
    metrics.gauge_function("cairn_window_hit_rate", "Share of the prompts of a window that nobody had to compute",
                           labels, [counts] { return counts().hit_rate(); });
    metrics.gauge_function("cairn_window_asked_tokens", "Tokens of the prompts of a window", labels,
                           [counts] { return static_cast<double>(counts().asked); });
    metrics.gauge_function("cairn_window_loaded_tokens", "Of those, tokens that were loaded", labels,
                           [counts] { return static_cast<double>(counts().loaded()); });
  };
  add_window("requests", [&tokens] { return tokens.last_requests(); });
  add_window("time", [&tokens, &clock] { return tokens.last_time(clock.now()); });
}

void add_event_metrics(Metrics& metrics, const EventStream& stream) {
  struct EventFigure {
    const char* name;
    const char* help;
    double (*value)(const EventStreamStatus&);
  };
  constexpr EventFigure kCounters[] = {
      {"cairn_events_published_total", "Events sent to routers",
       [](const EventStreamStatus& s) { return static_cast<double>(s.published.events); }},
      {"cairn_event_batches_total", "Messages that they were sent in",
       [](const EventStreamStatus& s) { return static_cast<double>(s.published.batches); }},
      {"cairn_event_bytes_total", "Bytes of those",
       [](const EventStreamStatus& s) { return static_cast<double>(s.published.bytes); }},
      {"cairn_event_replays_total", "Requests of routers that missed messages, answered from the buffer",
       [](const EventStreamStatus& s) { return static_cast<double>(s.published.replays); }},
      {"cairn_event_snapshots_total", "Requests of routers that joined late, answered by a snapshot",
       [](const EventStreamStatus& s) { return static_cast<double>(s.published.snapshots); }},
      {"cairn_event_refused_replays_total", "Requests that were malformed, or whose peer did not read the answer",
       [](const EventStreamStatus& s) { return static_cast<double>(s.published.refused_replays); }},
      {"cairn_event_log_snapshots_total", "Times that the stream fell behind the log, and one for its start",
       [](const EventStreamStatus& s) { return static_cast<double>(s.snapshots); }},
      {"cairn_engine_event_batches_total", "Batches of events received from the engine",
       [](const EventStreamStatus& s) { return static_cast<double>(s.engine.batches); }},
      {"cairn_engine_events_lost_total", "Times that batches of the engine were lost, malformed or counted anew",
       [](const EventStreamStatus& s) {
         return static_cast<double>(s.engine.lost + s.engine.invalid + s.engine.restarts);
       }},
  };
  for (const EventFigure& figure : kCounters) {
    metrics.counter_function(figure.name, figure.help, {},
                             [&stream, value = figure.value] { return value(stream.status()); });
  }
  metrics.gauge_function("cairn_event_blocks_announced", "Blocks that routers have been told of", {},
                         [&stream] { return static_cast<double>(stream.status().blocks.announced); });
  metrics.gauge_function("cairn_event_blocks_waiting", "Blocks that wait for their tokens or their parent to be known",
                         {}, [&stream] { return static_cast<double>(stream.status().blocks.waiting); });
}

void add_tier_metrics(Metrics& metrics, const Tier& tier) {
  const MetricLabels labels{{"tier", to_string(tier.level())}};
  for (const TierUse use : {TierUse::kReading, TierUse::kWriting}) {
    const MetricLabels with_use{{"tier", to_string(tier.level())}, {"use", to_string(use)}};
    metrics.gauge_function("cairn_tier_up", "Whether a tier can be used; 0 while it is taken out", with_use,
                           [&tier, use] { return tier.is_up(use) ? 1.0 : 0.0; });
    metrics.counter_function("cairn_tier_failures_total", "Copies that a tier made fail", with_use,
                             [&tier, use] { return static_cast<double>(tier.report(use).failures); });
    metrics.counter_function("cairn_tier_out_total", "Times that a tier was taken out", with_use,
                             [&tier, use] { return static_cast<double>(tier.report(use).times_out); });
  }
  if (tier.has_file()) {
    const TierRecovered& found = tier.recovered();
    metrics.gauge_function("cairn_disk_recovered_blocks", "Blocks that the file held when it was opened", labels,
                           [&found] { return static_cast<double>(found.blocks); });
    metrics.gauge_function("cairn_disk_damaged_entries", "Entries of the file that were damaged or cut off then",
                           labels, [&found] { return static_cast<double>(found.damaged + found.cut_off); });
    metrics.gauge_function("cairn_disk_file_damaged", "Whether the file itself was repaired or replaced then", labels,
                           [&found] { return found.damage.empty() ? 0.0 : 1.0; });
  }
  const BlockPool* const pool = tier.pool();
  if (pool == nullptr) {
    return;
  }
  for (const auto& figure : kCounts) {
    metrics.gauge_function(figure.name, figure.help, labels,
                           [pool, member = figure.member] { return static_cast<double>(pool->counts().*member); });
  }
  for (const auto& figure : kStats) {
    metrics.counter_function(figure.name, figure.help, labels,
                             [pool, member = figure.member] { return static_cast<double>(pool->stats().*member); });
  }
}

void add_link_metrics(Metrics& metrics, TierLink& link) {
  const MetricLabels labels{{"link", str_cat(to_string(link.from().level()), "-", to_string(link.to().level()))}};
  const LinkMeter& meter = link.meter();
  for (const auto& figure : kTotals) {
    metrics.counter_function(figure.name, figure.help, labels,
                             [&meter, member = figure.member] { return static_cast<double>(meter.totals().*member); });
  }
  for (const auto& figure : kInFlight) {
    metrics.gauge_function(figure.name, figure.help, labels,
                           [&meter, member = figure.member] { return static_cast<double>(meter.totals().*member); });
  }
  metrics.counter_function("cairn_copy_busy_seconds_total", "Time during which a link was copying", labels,
                           [&meter] { return std::chrono::duration<double>(meter.totals().busy).count(); });
  metrics.gauge_function("cairn_copy_bytes_per_second", "Recent speed of a link while it was copying", labels,
                         [&meter] { return meter.bytes_per_second(); });
  link.meter().record_into(metrics.histogram(
      "cairn_copy_seconds", "How long copies took, without the time that ranks held them back", labels));
}

void add_offload_metrics(Metrics& metrics, CacheLevel into, const Offloader& offloader) {
  const MetricLabels labels{{"into", to_string(into)}};
  metrics.counter_function("cairn_offload_offered_total", "Blocks that could have been copied down", labels,
                           [&offloader] { return static_cast<double>(offloader.status().offered); });
  metrics.counter_function("cairn_offload_copied_total", "Blocks copied down", labels,
                           [&offloader] { return static_cast<double>(offloader.status().copied); });
  metrics.gauge_function("cairn_offload_pending", "Blocks that wait to be copied down", labels,
                         [&offloader] { return static_cast<double>(offloader.status().pending); });
  metrics.gauge_function("cairn_offload_in_flight", "Blocks being copied down", labels,
                         [&offloader] { return static_cast<double>(offloader.status().in_flight); });
  for (std::size_t i = 0; i < kOffloadRefusals; ++i) {
    const auto refusal = static_cast<OffloadRefusal>(i);
    metrics.counter_function("cairn_offload_refused_total", "Blocks that were not copied down, by reason",
                             {{"into", to_string(into)}, {"reason", with_dashes(to_string(refusal))}},
                             [&offloader, i] { return static_cast<double>(offloader.status().refused[i]); });
  }
  metrics.counter_function("cairn_offload_filter_calls_total", "Calls of the user's offload filter", labels,
                           [&offloader] { return static_cast<double>(offloader.status().filter_calls); });
  metrics.counter_function("cairn_offload_filter_overruns_total", "Of those, calls that took longer than the limit",
                           labels, [&offloader] { return static_cast<double>(offloader.status().filter_overruns); });
  metrics.counter_function("cairn_offload_filter_failures_total", "Of those, calls that threw", labels,
                           [&offloader] { return static_cast<double>(offloader.status().filter_failures); });
  metrics.gauge_function("cairn_offload_filter_bypassed", "1 while the offload filter is not called", labels,
                         [&offloader] { return offloader.status().is_filter_bypassed ? 1.0 : 0.0; });
}

void add_scrub_metrics(Metrics& metrics, const DiskScrub& scrub) {
  constexpr Figure<ScrubStatus, std::uint64_t> kCounters[] = {
      {"cairn_scrub_bytes_total", "Bytes that the scrub of the disk tier read", &ScrubStatus::bytes},
      {"cairn_scrub_blocks_total", "Blocks that the scrub read and found right", &ScrubStatus::blocks},
      {"cairn_scrub_damaged_total", "Blocks that the scrub found damaged and dropped", &ScrubStatus::damaged},
      {"cairn_scrub_unreadable_total", "Blocks that the scrub could not read", &ScrubStatus::unreadable},
      {"cairn_scrub_passes_total", "Passes of the scrub over the whole tier", &ScrubStatus::passes},
  };
  for (const auto& figure : kCounters) {
    metrics.counter_function(figure.name, figure.help, {},
                             [&scrub, member = figure.member] { return static_cast<double>(scrub.status().*member); });
  }
  metrics.gauge_function("cairn_scrub_position", "Block that the scrub reads next", {},
                         [&scrub] { return static_cast<double>(scrub.status().position); });
}

void add_remote_metrics(Metrics& metrics, const RemoteLookup& lookup, const RetryingStore& store) {
  constexpr Figure<RemoteLookupStatus, std::uint64_t> kCounters[] = {
      {"cairn_remote_asked_total", "Blocks that the store was asked for in the background", &RemoteLookupStatus::asked},
      {"cairn_remote_found_total", "Of those, blocks that it has", &RemoteLookupStatus::found},
      {"cairn_remote_unanswered_total", "Of those, blocks for which it did not answer", &RemoteLookupStatus::failed},
      {"cairn_remote_not_asked_total", "Blocks that it was not asked for: the queue was full, or the tier out of use",
       &RemoteLookupStatus::dropped},
  };
  for (const auto& figure : kCounters) {
    metrics.counter_function(figure.name, figure.help, {}, [&lookup, member = figure.member] {
      return static_cast<double>(lookup.status().*member);
    });
  }
  metrics.counter_function("cairn_remote_retries_total", "Reads and writes of the store that were tried again", {},
                           [&store] { return static_cast<double>(store.retries()); });
}

void add_loss_metrics(Metrics& metrics, CacheLevel of, const BlockRegistry& registry) {
  metrics.counter_function("cairn_evicted_unsaved_total", "Blocks evicted while no other tier held them",
                           {{"tier", to_string(of)}},
                           [&registry, of] { return static_cast<double>(registry.evicted_unsaved(of)); });
}

void add_prefill_metrics(Metrics& metrics, const PrefillMeter& prefill) {
  constexpr Figure<PrefillStatus, double> kSpeeds[] = {
      {"0", "", &PrefillStatus::tokens_per_second},
      {"32768", "", &PrefillStatus::tokens_per_second_at_32k},
  };
  for (const auto& speed : kSpeeds) {
    metrics.gauge_function("cairn_prefill_tokens_per_second",
                           "Speed of the engine's prefill that loads are weighed against, by context; 0 if unknown",
                           {{"context", speed.name}},
                           [&prefill, member = speed.member] { return prefill.status().*member; });
  }
  metrics.gauge_function("cairn_prefill_iteration_seconds",
                         "Time of an iteration of the engine besides the tokens that it prefills", {},
                         [&prefill] { return prefill.status().seconds_per_iteration; });
  metrics.counter_function("cairn_prefill_iterations_total",
                           "Iterations of the engine that prefilled and were reported", {},
                           [&prefill] { return static_cast<double>(prefill.status().iterations); });
}

void add_onboard_metrics(Metrics& metrics, const Onboarder& onboarder) {
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3, CacheLevel::kG4}) {
    metrics.counter_function(
        "cairn_load_hits_total", "Blocks looked up and found, by the tier that had them", {{"tier", to_string(level)}},
        [&onboarder, level] { return static_cast<double>(onboarder.status().hits[index_of(level)]); });
  }
  constexpr Figure<OnboardStatus, std::uint64_t> kCounters[] = {
      {"cairn_load_misses_total", "Blocks looked up and not found in any tier", &OnboardStatus::misses},
      {"cairn_loads_total", "Loads finished", &OnboardStatus::finished},
      {"cairn_loads_refused_total", "Loads refused because too many were in flight", &OnboardStatus::refused},
      {"cairn_load_joined_total", "Blocks that another load was already copying", &OnboardStatus::joined},
      {"cairn_load_not_worth_it_total", "Blocks that are faster to compute than to load", &OnboardStatus::not_worth_it},
      {"cairn_loads_expired_total", "Loads that ended by their deadline", &OnboardStatus::expired},
  };
  for (const auto& figure : kCounters) {
    metrics.counter_function(figure.name, figure.help, {}, [&onboarder, member = figure.member] {
      return static_cast<double>(onboarder.status().*member);
    });
  }
  metrics.gauge_function("cairn_loads_in_flight", "Loads in flight", {},
                         [&onboarder] { return static_cast<double>(onboarder.status().loads); });
}

}  // namespace cairn
