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

void write_settings(std::ostream& out, const std::string& trace, const ReplaySettings& settings) {
  out << trace << ": " << with_commas(settings.workers) << (settings.workers == 1 ? " worker, " : " workers, each ")
      << with_commas(settings.blocks) << " blocks of " << settings.block_size << " tokens";
  if (settings.host_blocks > 0) {
    out << ", " << with_commas(settings.host_blocks) << " in host memory at " << number_text(settings.host_gbps)
        << " GB/s";
  }
  if (settings.disk_blocks > 0) {
    out << ", " << with_commas(settings.disk_blocks) << " on disk at " << number_text(settings.disk_gbps) << " GB/s";
  }
  out << "; " << settings.policy << ", " << settings.placement << ", profile " << settings.profile;
  if (settings.concurrency > 0) {
    out << ", " << settings.concurrency << " requests in flight";
  }
  if (settings.speedup != 1) {
    out << ", " << number_text(settings.speedup) << " times as fast";
  }
  out << "\n\n";
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
}

double peak_share(const Report& report) {
  return report.cache.capacity == 0
             ? 0
             : static_cast<double>(report.cache.peak_in_use) / static_cast<double>(report.cache.capacity);
}

std::string gigabytes(std::uint64_t bytes) { return str_cat(number_text(static_cast<double>(bytes) / 1e9), " GB"); }

// Shares of the reused tokens by tier: "G1 0.0817, G2 0.1204".
std::string hits_by_tier(const Report& report) {
  double below = 0;
  std::string rest;
  for (std::size_t tier = 0; tier < report.tiers.size(); ++tier) {
    below += report.loaded_ratio(tier);
    rest += str_cat(", ", to_string(report.tiers[tier].level), " ", fixed(report.loaded_ratio(tier), 4));
  }
  return str_cat("G1 ", fixed(report.reused_ratio() - below, 4), rest);
}

void write_tiers(std::ostream& out, const Report& report) {
  for (const sim::TierCounts& tier : report.tiers) {
    line(out, to_string(tier.level),
         str_cat(with_commas(tier.capacity), " blocks of a worker; ", with_commas(tier.copied), " copied down (",
                 gigabytes(tier.bytes_down), "), ", with_commas(tier.loaded), " loaded (", gigabytes(tier.bytes_up),
                 "), ", with_commas(tier.evicted), " evicted",
                 tier.dropped == 0 ? "" : str_cat(", ", with_commas(tier.dropped), " dropped")));
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

const Figure kFigures[] = {
    {"answered", [](const Report& r) { return with_commas(r.counts.completed); }},
    {"refused", [](const Report& r) { return with_commas(r.counts.refused); }},
    {"hit ratio", [](const Report& r) { return fixed(r.reused_ratio(), 4); }},
    {"computed tokens", [](const Report& r) { return with_commas(r.counts.computed_tokens); }},
    {"TTFT mean ms", [](const Report& r) { return number_text(r.latencies.ttft_ms.mean); }},
    {"TTFT p99 ms", [](const Report& r) { return number_text(r.latencies.ttft_ms.p99); }},
    {"ITL mean ms", [](const Report& r) { return number_text(r.latencies.itl_ms.mean); }},
    {"ITL p99 ms", [](const Report& r) { return number_text(r.latencies.itl_ms.p99); }},
    {"E2E mean ms", [](const Report& r) { return number_text(r.latencies.e2e_ms.mean); }},
    {"queue mean ms", [](const Report& r) { return number_text(r.latencies.queue_ms.mean); }},
    {"tokens out / s", [](const Report& r) { return number_text(r.per_second(r.counts.output_tokens)); }},
    {"preemptions", [](const Report& r) { return with_commas(r.counts.preemptions); }},
    {"evicted blocks", [](const Report& r) { return with_commas(r.cache.evicted); }},
    {"peak use", [](const Report& r) { return percent(peak_share(r)); }},
};

std::string difference_text(const Difference& difference) {
  const double change = difference.relative();
  return str_cat(difference.measure, " ", number_text(difference.base), " -> ", number_text(difference.other),
                 difference.unit.empty() ? "" : " ", difference.unit, " (", change < 0 ? "" : "+", percent(change),
                 ")");
}

}  // namespace

void write_report(std::ostream& out, const std::string& trace, const ReplayRun& run) {
  const Report& report = run.report;
  const sim::ReplayCounts& counts = report.counts;
  write_settings(out, trace, run.settings);
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
  out << trace << ": " << runs.size() << " settings side by side\n\n" << std::string(16, ' ');
  std::vector<std::size_t> widths;
  for (const ReplayRun& run : runs) {
    widths.push_back(std::max<std::size_t>(14, run.name.size() + 2));
    pad(out, run.name, widths.back());
  }
  out << "\n";
  for (const Figure& figure : kFigures) {
    out << figure.title << std::string(16 - std::string_view(figure.title).size(), ' ');
    for (std::size_t i = 0; i < runs.size(); ++i) {
      pad(out, figure.text(runs[i].report), widths[i]);
    }
    out << "\n";
  }
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
