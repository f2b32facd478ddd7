// The JSON of replay_report.h.
#include <nlohmann/json.hpp>
#include <utility>

#include "cairn/cli/replay_report.h"
#include "cairn/manager/config_keys.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;
using sim::Distribution;
using sim::Report;

Json rate_of(const LinkRate& rate) { return {{"down_gbps", rate.down}, {"up_gbps", rate.up}}; }

Json size_of(const ReplaySettings& settings, const TierConfig& tier) {
  const std::uint64_t blocks = settings.blocks_of(tier);
  return {
      {"blocks", blocks}, {"tokens", blocks * settings.manager.block_size}, {"bytes", blocks * settings.block_bytes()}};
}

Json config_of(const std::string& trace, const ReplaySettings& settings) {
  const ManagerConfig& manager = settings.manager;
  Json keys = Json::object();
  for (const ConfigKey& key : config_keys()) {
    if (!key.is_secret) {
      keys[key.name] = key.print(manager);
    }
  }
  Json faults = Json::array();
  for (const sim::TierFault& fault : settings.faults) {
    faults.push_back({{"tier", to_string(fault.level)},
                      {"kind", sim::to_string(fault.kind)},
                      {"begin_s", std::chrono::duration<double>(fault.begin).count()},
                      {"length_s", std::chrono::duration<double>(fault.length).count()}});
  }
  return {{"trace", trace},
          {"workers", settings.workers},
          {"block_size", manager.block_size},
          {"blocks", settings.blocks_of(manager.device)},
          {"host_blocks", settings.blocks_of(manager.host)},
          {"disk_blocks", settings.blocks_of(manager.disk)},
          {"sizes",
           {{"device", size_of(settings, manager.device)},
            {"host", size_of(settings, manager.host)},
            {"disk", size_of(settings, manager.disk)}}},
          {"host_link", rate_of(settings.host_rate)},
          {"disk_link", rate_of(settings.disk_rate)},
          {"host_latency_us", std::chrono::duration<double, std::micro>(settings.host_latency).count()},
          {"disk_latency_us", std::chrono::duration<double, std::micro>(settings.disk_latency).count()},
          {"shared_links", settings.shared_links},
          {"link_order", settings.link_order},
          {"faults", std::move(faults)},
          {"kv_bytes", settings.kv_bytes},
          {"policy", to_string(manager.device.policy)},
          {"placement", settings.placement},
          {"profile", settings.profile},
          {"engine", settings.engine},
          {"speedup", settings.speedup},
          {"rate", settings.rate},
          {"concurrency", settings.concurrency},
          {"max_seqs", settings.max_seqs},
          {"batch_tokens", settings.batch_tokens},
          {"chunked_prefill", settings.chunked_prefill},
          {"prefix_caching", settings.prefix_caching},
          {"costs", settings.costs},
          {"prices", {{"gpu", settings.prices.gpu}, {"host", settings.prices.host}, {"disk", settings.prices.disk}}},
          {"manager", std::move(keys)}};
}

void add(Json& out, const std::string& name, const Distribution& values) {
  out["mean_" + name] = values.mean;
  out["min_" + name] = values.min;
  out["max_" + name] = values.max;
  out["median_" + name] = values.median;
  out["p75_" + name] = values.p75;
  out["p90_" + name] = values.p90;
  out["p95_" + name] = values.p95;
  out["p99_" + name] = values.p99;
  out["std_" + name] = values.std;
}

Json report_of(const Report& report) {
  const sim::ReplayCounts& counts = report.counts;
  const std::uint64_t tokens = counts.input_tokens + counts.output_tokens;
  Json out = {{"num_requests", counts.arrived},
              {"completed_requests", counts.completed},
              {"total_input_tokens", counts.input_tokens},
              {"total_output_tokens", counts.output_tokens},
              {"duration_ms", report.duration_ms},
              {"request_throughput_rps", report.per_second(counts.completed)},
              {"input_throughput_tok_s", report.per_second(counts.input_tokens)},
              {"output_throughput_tok_s", report.per_second(counts.output_tokens)},
              {"total_throughput_tok_s", report.per_second(tokens)},
              {"processed_tokens", tokens},
              {"prefix_cache_reused_ratio", report.reused_ratio()}};
  add(out, "ttft_ms", report.latencies.ttft_ms);
  add(out, "ttst_ms", report.latencies.ttst_ms);
  add(out, "tpot_ms", report.latencies.tpot_ms);
  add(out, "itl_ms", report.latencies.itl_ms);
  add(out, "e2e_latency_ms", report.latencies.e2e_ms);
  add(out, "output_token_throughput_per_user", report.latencies.tokens_per_s);
  return out;
}

Json hits_of(const Report& report) {
  Json below = Json::object();
  double from_below = 0;
  for (const sim::TierCounts& tier : report.tiers) {
    below[to_string(tier.level)] = report.loaded_ratio(tier.level);
    from_below += report.loaded_ratio(tier.level);
  }
  Json out = {{"G1", report.reused_ratio() - from_below}};
  out.update(below);
  return out;
}

Json tiers_of(const Report& report) {
  Json out = Json::array();
  for (const sim::TierCounts& tier : report.tiers) {
    out.push_back({{"tier", to_string(tier.level)},
                   {"blocks", tier.capacity},
                   {"copied_blocks", tier.copied},
                   {"refused_blocks", tier.refused},
                   {"evicted_blocks", tier.evicted},
                   {"loaded_blocks", tier.loaded},
                   {"bytes_written", tier.bytes_written},
                   {"bytes_read", tier.bytes_read},
                   {"write_amplification", report.write_amplification(tier)},
                   {"failed_blocks", tier.failed},
                   {"times_out", tier.times_out},
                   {"seconds_down", tier.seconds_down},
                   {"seconds_up", tier.seconds_up}});
  }
  return out;
}

Json more_of(const Report& report, const TraceProblems& problems) {
  const sim::ReplayCounts& counts = report.counts;
  const TokenSources sources = sources_of(report);
  Json out = {
      {"complete", report.complete},
      {"hit_ratio_by_tier", hits_of(report)},
      {"first_admission_reused_ratio", report.first_reused_ratio()},
      {"computed_prompt_tokens", counts.computed_tokens},
      {"saved_prompt_tokens", counts.saved_tokens},
      {"tokens_by_source",
       {{"device", sources.device}, {"host", sources.host}, {"disk", sources.disk}, {"computed", sources.computed}}},
      {"rejected_by_cost_model_tokens", counts.rejected_tokens},
      {"busy_seconds", report.busy_s},
      {"admissions", counts.admissions},
      {"preemptions", counts.preemptions},
      {"livelocks", counts.livelocks},
      {"passes", counts.passes},
      {"evicted_blocks", report.cache.evicted},
      {"stored_blocks", report.cache.stored_blocks},
      {"removed_blocks", report.cache.removed_blocks},
      {"events", report.cache.events},
      {"peak_blocks_in_use", report.cache.peak_in_use},
      {"peak_waiting_requests", report.peak_waiting},
      {"refused_requests", counts.refused},
      {"refusals", report.refusals},
      {"bad_rows", problems.bad_rows},
      {"bad_row_names", problems.names}};
  add(out, "queue_ms", report.latencies.queue_ms);
  add(out, "load_ms", report.latencies.load_ms);
  out["tiers"] = tiers_of(report);
  return out;
}

Json bars_of(const std::vector<sim::Bar>& bars) {
  Json out = Json::array();
  for (const sim::Bar& bar : bars) {
    out.push_back({{"below_ms", bar.below}, {"count", bar.count}});
  }
  return out;
}

Json series_of(const Report& report) {
  Json points = Json::array();
  for (const sim::SeriesPoint& point : report.series) {
    Json one = {{"begin_s", point.begin_s},
                {"hit_ratio", nullptr},
                {"ttft_ms", nullptr},
                {"ttft_max_ms", nullptr},
                {"blocks_in_use", point.blocks_in_use},
                {"blocks_resident", point.blocks_resident},
                {"blocks_below", point.below},
                {"waiting", point.waiting},
                {"prompt_tokens_per_s", point.prompt_tokens_per_s},
                {"output_tokens_per_s", point.output_tokens_per_s}};
    if (point.hit_ratio) {
      one["hit_ratio"] = *point.hit_ratio;
      one["ttft_ms"] = *point.ttft_ms;
      one["ttft_max_ms"] = *point.ttft_max_ms;
    }
    points.push_back(std::move(one));
  }
  return {{"span_s", report.span_s}, {"points", std::move(points)}};
}

Json run_of(const std::string& trace, const ReplayRun& run, const TraceProblems& problems) {
  const ReplayCost cost = cost_of(run);
  return {{"config", config_of(trace, run.settings)},
          {"report", report_of(run.report)},
          {"more", more_of(run.report, problems)},
          {"dollars_per_million_prompt_tokens", {{"gpu", cost.gpu}, {"tiers", cost.tiers}}},
          {"series", series_of(run.report)},
          {"ttft_histogram", bars_of(run.report.ttft_histogram)},
          {"eviction_age_histogram", bars_of(run.report.eviction_histogram)}};
}

// Invalid UTF-8 in names from the trace is replaced.
std::string text_of(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

std::string to_json(const std::string& trace, const ReplayRun& run, const TraceProblems& problems) {
  return text_of(run_of(trace, run, problems));
}

std::string to_json(const std::string& trace, std::span<const ReplayRun> runs, std::span<const Comparison> comparisons,
                    const TraceProblems& problems) {
  Json all = {{"runs", Json::array()}, {"compare", Json::array()}};
  for (const ReplayRun& run : runs) {
    Json named = {{"name", run.name}};
    named.update(run_of(trace, run, problems));
    all["runs"].push_back(std::move(named));
  }
  for (const Comparison& comparison : comparisons) {
    Json one = {{"base", comparison.base},
                {"other", comparison.other},
                {"requests", comparison.requests},
                {"differences", Json::array()}};
    for (const Difference& difference : comparison.differences) {
      one["differences"].push_back({{"measure", difference.measure},
                                    {"base", difference.base},
                                    {"other", difference.other},
                                    {"relative", difference.relative()},
                                    {"matters", difference.matters}});
    }
    all["compare"].push_back(std::move(one));
  }
  return text_of(all);
}

}  // namespace cairn::cli
