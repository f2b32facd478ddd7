#include "cairn/cli/replay_report.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {
namespace {

using sim::Distribution;
using sim::Report;

// About four significant digits: "0.0817", "12.35", "1,234".
std::string number_text(double value) {
  const double size = std::abs(value);
  if (size >= 1000) {
    return str_cat(value < 0 ? "-" : "", with_commas(static_cast<std::uint64_t>(std::llround(size))));
  }
  return fixed(value, size >= 100 ? 1 : size >= 1 ? 2 : 4);
}

std::string percent(double share) { return str_cat(fixed(100 * share, 1), " %"); }

std::string span_text(double ms) {
  const double seconds = ms / 1000;
  if (seconds < 120) {
    return str_cat(fixed(seconds, 1), " s");
  }
  const auto minutes = static_cast<std::uint64_t>(seconds / 60);
  return minutes < 120 ? str_cat(minutes, " min ", static_cast<std::uint64_t>(seconds) % 60, " s")
                       : str_cat(minutes / 60, " h ", minutes % 60, " min");
}

void pad(std::ostream& out, const std::string& text, std::size_t width) {
  out << std::string(width > text.size() ? width - text.size() : 0, ' ') << text;
}

void line(std::ostream& out, const std::string& title, const std::string& rest) {
  out << title << std::string(title.size() < 16 ? 16 - title.size() : 1, ' ') << rest << "\n";
}

std::string gigabytes(double bytes) { return str_cat(number_text(bytes / 1e9), " GB"); }
std::string gigabytes(std::uint64_t bytes) { return gigabytes(static_cast<double>(bytes)); }

std::string rate_text(const LinkRate& rate) {
  return rate.down == rate.up ? number_text(rate.up) : str_cat(number_text(rate.down), "/", number_text(rate.up));
}

void write_latency(std::ostream& out, const std::string& name, const Distribution& values) {
  out << name << std::string(name.size() < 9 ? 9 - name.size() : 1, ' ');
  for (const double value : {values.mean, values.median, values.p75, values.p90, values.p95, values.p99, values.max}) {
    pad(out, number_text(value), 12);
  }
  out << "\n";
}

void write_latencies(std::ostream& out, const sim::Latencies& latencies) {
  out << "\nms       ";
  for (const char* title : {"mean", "p50", "p75", "p90", "p95", "p99", "max"}) {
    pad(out, title, 12);
  }
  out << "\n";
  write_latency(out, "TTFT", latencies.ttft_ms);
  write_latency(out, "queue", latencies.queue_ms);
  write_latency(out, "TTST", latencies.ttst_ms);
  write_latency(out, "ITL", latencies.itl_ms);
  write_latency(out, "TPOT", latencies.tpot_ms);
  write_latency(out, "E2E", latencies.e2e_ms);
  if (latencies.load_ms.count > 0) {
    write_latency(out, "load", latencies.load_ms);
  }
}

double peak_share(const Report& report) {
  return report.cache.capacity == 0
             ? 0
             : static_cast<double>(report.cache.peak_in_use) / static_cast<double>(report.cache.capacity);
}

double share_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Shares of the reused tokens by tier: "device 0.0817, host 0.1204".
std::string hits_by_tier(const Report& report) {
  double below = 0;
  std::string rest;
  for (const sim::TierCounts& tier : report.tiers) {
    below += report.loaded_ratio(tier.level);
    rest += str_cat(tier.level == CacheLevel::kG2 ? ", host " : ", disk ", fixed(report.loaded_ratio(tier.level), 4));
  }
  return str_cat("device ", fixed(report.reused_ratio() - below, 4), rest);
}

void write_sources(std::ostream& out, const Report& report) {
  const TokenSources sources = sources_of(report);
  const std::uint64_t all = sources.all();
  const auto text = [all](std::string_view name, std::uint64_t tokens) {
    return str_cat(name, " ", with_commas(tokens), " (", percent(share_of(tokens, all)), ")");
  };
  line(out, "tokens from",
       str_cat(text("device", sources.device), ", ", text("host", sources.host), ", ", text("disk", sources.disk), ", ",
               text("computed", sources.computed)));
  line(out, "not loaded",
       str_cat(with_commas(report.counts.rejected_tokens), " tokens that a tier had and that were faster to compute"));
}

std::string tier_name(CacheLevel level) {
  return str_cat(level == CacheLevel::kG2 ? "host (" : "disk (", to_string(level), ")");
}

std::string times_text(std::uint64_t times) { return times == 1 ? "once" : str_cat(with_commas(times), " times"); }

void write_tiers(std::ostream& out, const Report& report) {
  for (const sim::TierCounts& tier : report.tiers) {
    line(out, tier_name(tier.level),
         str_cat(with_commas(tier.capacity), " blocks of a worker; ", with_commas(tier.copied), " copied down, ",
                 with_commas(tier.loaded), " loaded, ", with_commas(tier.evicted), " evicted, ",
                 with_commas(tier.refused), " refused; ", gigabytes(tier.bytes_written), " written (",
                 fixed(report.write_amplification(tier), 2), " times what was computed), ", gigabytes(tier.bytes_read),
                 " read", tier.failed == 0 ? "" : str_cat(", ", with_commas(tier.failed), " blocks failed"),
                 tier.times_out == 0 ? "" : str_cat("; taken out of use ", times_text(tier.times_out))));
  }
}

void write_refusals(std::ostream& out, const Report& report) {
  if (report.counts.refused == 0) {
    return;
  }
  out << "\n" << with_commas(report.counts.refused) << " refused, as they could never be served:\n";
  for (const std::string& refusal : report.refusals) {
    out << "  " << refusal << "\n";
  }
  if (report.counts.refused > report.refusals.size()) {
    out << "  and " << with_commas(report.counts.refused - report.refusals.size()) << " more\n";
  }
}

// A row of the comparison, with a column for each run.
struct Figure {
  const char* title;
  std::string (*text)(const Report&);
};

// A count of a tier below; 0 if there is no such tier.
std::uint64_t count_of(const Report& report, CacheLevel level, std::uint64_t sim::TierCounts::* count) {
  const auto tier = std::ranges::find(report.tiers, level, &sim::TierCounts::level);
  return tier == report.tiers.end() ? 0 : (*tier).*count;
}
std::string gigabytes_of(const Report& report, CacheLevel level, std::uint64_t sim::TierCounts::* bytes) {
  const std::uint64_t count = count_of(report, level, bytes);
  return count == 0 ? "0" : number_text(static_cast<double>(count) / 1e9);
}
std::uint64_t sum_of(const Report& report, std::uint64_t sim::TierCounts::* count) {
  return count_of(report, CacheLevel::kG2, count) + count_of(report, CacheLevel::kG3, count);
}

const Figure kFigures[] = {
    {"answered", [](const Report& r) { return with_commas(r.counts.completed); }},
    {"refused", [](const Report& r) { return with_commas(r.counts.refused); }},
    {"hit ratio", [](const Report& r) { return fixed(r.reused_ratio(), 4); }},
    {"from host", [](const Report& r) { return percent(share_of(sources_of(r).host, sources_of(r).all())); }},
    {"from disk", [](const Report& r) { return percent(share_of(sources_of(r).disk, sources_of(r).all())); }},
    {"computed tokens", [](const Report& r) { return with_commas(r.counts.computed_tokens); }},
    {"not loaded", [](const Report& r) { return with_commas(r.counts.rejected_tokens); }},
    {"TTFT mean ms", [](const Report& r) { return number_text(r.latencies.ttft_ms.mean); }},
    {"TTFT p99 ms", [](const Report& r) { return number_text(r.latencies.ttft_ms.p99); }},
    {"TTFT p50 ms", [](const Report& r) { return number_text(r.latencies.ttft_ms.median); }},
    {"ITL mean ms", [](const Report& r) { return number_text(r.latencies.itl_ms.mean); }},
    {"ITL p99 ms", [](const Report& r) { return number_text(r.latencies.itl_ms.p99); }},
    {"E2E mean ms", [](const Report& r) { return number_text(r.latencies.e2e_ms.mean); }},
    {"queue mean ms", [](const Report& r) { return number_text(r.latencies.queue_ms.mean); }},
    {"load mean ms",
     [](const Report& r) { return r.latencies.load_ms.count == 0 ? "0" : number_text(r.latencies.load_ms.mean); }},
    {"tokens out / s", [](const Report& r) { return number_text(r.per_second(r.counts.output_tokens)); }},
    {"preemptions", [](const Report& r) { return with_commas(r.counts.preemptions); }},
    {"evicted blocks", [](const Report& r) { return with_commas(r.cache.evicted); }},
    {"GPU busy", [](const Report& r) { return percent(r.busy_share()); }},
    {"peak use", [](const Report& r) { return percent(peak_share(r)); }},
    {"host GB written",
     [](const Report& r) { return gigabytes_of(r, CacheLevel::kG2, &sim::TierCounts::bytes_written); }},
    {"host GB read", [](const Report& r) { return gigabytes_of(r, CacheLevel::kG2, &sim::TierCounts::bytes_read); }},
    {"disk GB written",
     [](const Report& r) { return gigabytes_of(r, CacheLevel::kG3, &sim::TierCounts::bytes_written); }},
    {"disk GB read", [](const Report& r) { return gigabytes_of(r, CacheLevel::kG3, &sim::TierCounts::bytes_read); }},
    {"failed copies", [](const Report& r) { return with_commas(sum_of(r, &sim::TierCounts::failed)); }},
    {"tiers taken out", [](const Report& r) { return with_commas(sum_of(r, &sim::TierCounts::times_out)); }},
};

std::string difference_text(const Difference& difference) {
  const double change = difference.relative();
  return str_cat(difference.measure, " ", number_text(difference.base), " -> ", number_text(difference.other),
                 difference.unit.empty() ? "" : " ", difference.unit, " (", change < 0 ? "" : "+", percent(change),
                 ")");
}

}  // namespace

TokenSources sources_of(const Report& report) {
  TokenSources sources{.host = report.loaded_tokens[sim::below_index(CacheLevel::kG2)],
                       .disk = report.loaded_tokens[sim::below_index(CacheLevel::kG3)],
                       .computed = report.counts.computed_tokens};
  sources.device = report.counts.saved_tokens - sources.host - sources.disk;
  return sources;
}

ReplayCost cost_of(const ReplayRun& run) {
  const ReplaySettings& settings = run.settings;
  const double millions = static_cast<double>(run.report.counts.input_tokens) / 1e6;
  if (millions == 0) {
    return {};
  }
  const auto gigabytes = [&](const TierConfig& tier) {
    return static_cast<double>(settings.blocks_of(tier) * settings.block_bytes()) / 1e9 * settings.workers;
  };
  const double hours = run.report.duration_ms / 3.6e6;
  return {.gpu = run.report.busy_s / 3600 * settings.prices.gpu / millions,
          .tiers = (gigabytes(settings.manager.host) * settings.prices.host +
                    gigabytes(settings.manager.disk) * settings.prices.disk) *
                   hours / millions};
}

std::string settings_text(const ReplaySettings& settings) {
  const ManagerConfig& manager = settings.manager;
  const auto size = [&](const TierConfig& tier, const std::string& of) {
    const std::uint64_t blocks = settings.blocks_of(tier);
    return str_cat(with_commas(blocks), " blocks", of, " (", with_commas(blocks * manager.block_size), " tokens, ",
                   gigabytes(blocks * settings.block_bytes()), ")");
  };
  std::string text = size(manager.device, str_cat(" of ", manager.block_size, " tokens"));
  if (manager.host.is_there()) {
    text += str_cat(", host ", size(manager.host, ""), " at ", rate_text(settings.host_rate), " GB/s");
  }
  if (manager.disk.is_there()) {
    text += str_cat(", disk ", size(manager.disk, ""), " at ", rate_text(settings.disk_rate), " GB/s");
  }
  return text;
}

void write_report(std::ostream& out, const std::string& trace, const ReplayRun& run) {
  const Report& report = run.report;
  const sim::ReplayCounts& counts = report.counts;
  const ReplaySettings& settings = run.settings;
  out << trace << ": " << with_commas(settings.workers) << (settings.workers == 1 ? " worker, " : " workers, each ")
      << settings_text(settings) << "; " << to_string(settings.manager.device.policy) << ", " << settings.placement
      << ", profile " << settings.profile << (settings.engine.empty() ? "" : str_cat(", engine ", settings.engine));
  if (settings.concurrency > 0) {
    out << ", " << settings.concurrency << " requests in flight";
  }
  if (settings.speedup != 1) {
    out << ", " << number_text(settings.speedup) << " times as fast";
  }
  out << "\n\n";
  if (!report.complete) {
    out << "stopped before the end; the figures are of the requests answered until then\n\n";
  }
  line(out, "requests",
       str_cat(with_commas(counts.completed), " answered of ", with_commas(counts.arrived), " that came, ",
               number_text(report.per_second(counts.completed)), " a second"));
  line(out, "time", str_cat(span_text(report.duration_ms), " of virtual time"));
  line(out, "tokens in",
       str_cat(with_commas(counts.input_tokens), ", ", number_text(report.per_second(counts.input_tokens)),
               " a second"));
  line(out, "tokens out",
       str_cat(with_commas(counts.output_tokens), ", ", number_text(report.per_second(counts.output_tokens)),
               " a second"));
  out << "\n";
  line(out, "hit ratio",
       str_cat(fixed(report.reused_ratio(), 4), " of the prompt tokens (", hits_by_tier(report), "); ",
               fixed(report.first_reused_ratio(), 4), " at first admissions"));
  line(out, "prefill",
       str_cat(with_commas(counts.computed_tokens), " tokens computed, ", with_commas(counts.saved_tokens),
               " saved, over ", with_commas(counts.admissions), " admissions"));
  line(out, "preemptions", with_commas(counts.preemptions));
  line(out, "evictions",
       str_cat(with_commas(report.cache.evicted), " blocks; ", with_commas(report.cache.stored_blocks), " stored, in ",
               with_commas(report.cache.events), " events"));
  line(out, "peak use",
       str_cat(with_commas(report.cache.peak_in_use), " of ", with_commas(report.cache.capacity),
               " blocks of a worker (", percent(peak_share(report)), "); ", with_commas(report.peak_waiting),
               " requests in one queue"));
  if (!report.tiers.empty()) {
    write_sources(out, report);
  }
  write_tiers(out, report);
  write_latencies(out, report.latencies);
  if (counts.livelocks > 0) {
    out << "\non " << with_commas(counts.livelocks)
        << " workers requests preempted each other without end, as they would have in the original; from then on\n"
           "waiting ones did not preempt\n";
  }
  write_refusals(out, report);
}

void write_comparison(std::ostream& out, const std::string& trace, std::span<const ReplayRun> runs,
                      std::span<const Comparison> comparisons) {
  out << trace << ": " << runs.size() << " settings side by side, " << with_commas(runs[0].settings.workers)
      << (runs[0].settings.workers == 1 ? " worker" : " workers") << "\n";
  for (const ReplayRun& run : runs) {
    out << "  " << run.name << ": " << settings_text(run.settings) << "\n";
  }
  out << "\n" << std::string(16, ' ');
  std::vector<std::size_t> widths;
  for (const ReplayRun& run : runs) {
    widths.push_back(std::max<std::size_t>(14, run.name.size() + 2));
    pad(out, run.name, widths.back());
  }
  out << "\n";
  for (const Figure& figure : kFigures) {
    const bool is_zero = std::ranges::all_of(runs, [&](const ReplayRun& run) {
      return figure.text(run.report) == "0" || figure.text(run.report) == percent(0);
    });
    if (is_zero) {
      continue;
    }
    out << figure.title << std::string(16 - std::string_view(figure.title).size(), ' ');
    for (std::size_t i = 0; i < runs.size(); ++i) {
      pad(out, figure.text(runs[i].report), widths[i]);
    }
    out << "\n";
  }
  out << "$ / M tokens in ";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    pad(out, number_text(cost_of(runs[i]).all()), widths[i]);
  }
  out << "\n";
  for (const ReplayRun& run : runs) {
    if (!run.report.complete) {
      out << "\n" << run.name << " was stopped before the end.\n";
    }
  }
  for (const Comparison& comparison : comparisons) {
    out << "\n"
        << comparison.other << " against " << comparison.base << ", over the " << with_commas(comparison.requests)
        << " requests that both answered:\n";
    std::string same;
    for (const Difference& difference : comparison.differences) {
      if (difference.matters) {
        out << "  matters: " << difference_text(difference) << "\n";
      } else {
        same += str_cat(same.empty() ? "" : ", ", difference.measure);
      }
    }
    if (!same.empty()) {
      out << "  no difference that matters: " << same << "\n";
    }
  }
}

}  // namespace cairn::cli
