#include "cairn/cli/replay_page.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

using page::Unit;
using sim::Report;
using sim::SeriesPoint;
using Look = page::Series::Look;
using Runs = std::span<const ReplayRun>;
using ValueAt = std::function<std::optional<double>(const SeriesPoint&)>;

// If the rare values are larger than the usual ones by this factor, the axis is logarithmic.
constexpr double kLogFrom = 20;

double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }
double count(std::uint64_t value) { return static_cast<double>(value); }

// The bytes of a tier of one worker.
double bytes_of(const ReplayRun& run, CacheLevel level) {
  const ManagerConfig& manager = run.settings.manager;
  const TierConfig& tier = level == CacheLevel::kG1   ? static_cast<const TierConfig&>(manager.device)
                           : level == CacheLevel::kG2 ? static_cast<const TierConfig&>(manager.host)
                                                      : static_cast<const TierConfig&>(manager.disk);
  return count(run.settings.blocks_of(tier) * run.settings.block_bytes());
}

std::string ms_text(double value) { return page::format(value, Unit::kMilliseconds); }
std::string share_text(double value) { return page::format(value, Unit::kShare); }
std::string short_text(std::uint64_t value) { return page::format_short(static_cast<double>(value)); }

std::vector<page::Point> over_time(const Report& report, const ValueAt& value) {
  std::vector<page::Point> points;
  for (const SeriesPoint& point : report.series) {
    points.push_back({.x = point.begin_s, .y = value(point)});
  }
  return points;
}

page::Axis time_axis(Runs runs) {
  double end = 0;
  for (const ReplayRun& run : runs) {
    end = std::max(end, run.report.duration_ms / 1000);
    if (!run.report.series.empty()) {
      end = std::max(end, run.report.series.back().begin_s);
    }
  }
  return {.label = "Virtual time", .unit = Unit::kSeconds, .from = 0, .to = end};
}

// One series for each run. A single run is named after the measure.
page::Chart time_chart(Runs runs, const std::string& measure, const ValueAt& value, Look look = Look::kLine) {
  page::Chart chart{.title = measure + " over time", .x = time_axis(runs), .y = {.label = measure}};
  for (const ReplayRun& run : runs) {
    chart.series.push_back({.name = runs.size() == 1 ? measure : run.name,
                            .look = runs.size() == 1 ? look : Look::kLine,
                            .points = over_time(run.report, value)});
  }
  return chart;
}

page::Chart hit_chart(Runs runs) {
  page::Chart chart =
      time_chart(runs, "Hit ratio", [](const SeriesPoint& point) { return point.hit_ratio; }, Look::kArea);
  chart.note =
      "Share of the prompt tokens that were found in the cache, for requests by the time of their first token.";
  chart.y.unit = Unit::kShare;
  chart.y.to = 1;
  chart.width = page::Chart::Width::kFull;
  if (runs.size() == 1) {
    const double all = runs[0].report.reused_ratio();
    chart.marks.push_back({page::Mark::Across::kY, all, "whole run: " + share_text(all)});
  }
  return chart;
}

page::Chart ttft_chart(Runs runs) {
  page::Chart chart = time_chart(runs, "Time to first token", [](const SeriesPoint& point) { return point.ttft_ms; });
  chart.note = "Mean from arrival to the first token, by the time of the first token.";
  chart.y.unit = Unit::kMilliseconds;
  if (runs.size() == 1) {
    chart.series[0].name = "mean";
    chart.series.push_back(
        {.name = "longest", .look = Look::kThin, .points = over_time(runs[0].report, [](const SeriesPoint& point) {
                                                   return point.ttft_max_ms;
                                                 })});
  }
  if (std::ranges::any_of(runs, [](const ReplayRun& run) {
        const sim::Distribution& ttft = run.report.latencies.ttft_ms;
        return ttft.p99 > kLogFrom * ttft.median;
      })) {
    chart.y.scale = page::Axis::Scale::kLog;
  }
  return chart;
}

// A histogram in shares, with bars whose edges grow by a constant factor. The first bar has everything below its end.
page::Chart distribution_chart(Runs runs, page::Chart chart, std::vector<sim::Bar> Report::* bars) {
  chart.x.scale = page::Axis::Scale::kLog;
  for (const ReplayRun& run : runs) {
    const std::vector<sim::Bar>& all = run.report.*bars;
    page::Series series{.name = runs.size() == 1 ? chart.title : run.name, .look = Look::kBars};
    double total = 0;
    for (const sim::Bar& bar : all) {
      total += static_cast<double>(bar.count);
    }
    // Leave out empty bars at the beginning.
    const auto first = std::ranges::find_if(all, [](const sim::Bar& bar) { return bar.count > 0; });
    if (first != all.end()) {
      const double ratio = all.size() > 1 ? all[1].below / all[0].below : 2;
      const double edge = first->below / ratio;
      chart.x.from = std::min(chart.x.from.value_or(edge), edge);
      double begin = first == all.begin() && first->below <= 1 ? 0 : edge;
      for (auto bar = first; bar != all.end(); ++bar) {
        series.points.push_back({begin, share(static_cast<double>(bar->count), total)});
        begin = bar->below;
      }
      series.points.push_back({begin, std::nullopt});
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

page::Chart ttft_distribution(Runs runs) {
  page::Chart chart = distribution_chart(runs,
                                         {.title = "Times to first token",
                                          .note = "How many requests waited how long for their first token.",
                                          .x = {.label = "Time to first token", .unit = Unit::kMilliseconds},
                                          .y = {.label = "Share of requests", .unit = Unit::kShare}},
                                         &Report::ttft_histogram);
  if (runs.size() == 1 && !runs[0].report.ttft_histogram.empty()) {
    const sim::Distribution& ttft = runs[0].report.latencies.ttft_ms;
    chart.marks = {{page::Mark::Across::kX, ttft.median, "p50"}, {page::Mark::Across::kX, ttft.p99, "p99"}};
  }
  return chart;
}

page::Chart eviction_chart(Runs runs) {
  return distribution_chart(
      runs,
      {.title = "Age of evicted blocks",
       .note = "Time since the last use of blocks when they were evicted. Young blocks are evicted if the cache "
               "is too small for the traffic.",
       .x = {.label = "Time since the last use", .unit = Unit::kMilliseconds},
       .y = {.label = "Share of evicted blocks", .unit = Unit::kShare}},
      &Report::eviction_histogram);
}

// As a share of a worker's blocks, so that runs with different capacities can be compared.
page::Chart use_chart(Runs runs) {
  page::Chart chart{.title = "Use of the cache",
                    .note = "Share of a worker's blocks that requests held, on average while it computed.",
                    .x = time_axis(runs),
                    .y = {.label = "Share of the capacity", .unit = Unit::kShare, .from = 0, .to = 1}};
  const auto add = [&](const std::string& name, const Report& report, Look look, double SeriesPoint::* blocks) {
    const auto capacity = static_cast<double>(report.cache.capacity);
    chart.series.push_back({.name = name, .look = look, .points = over_time(report, [&](const SeriesPoint& point) {
                                                          return std::optional(share(point.*blocks, capacity));
                                                        })});
  };
  for (const ReplayRun& run : runs) {
    add(runs.size() == 1 ? "in use" : run.name, run.report, runs.size() == 1 ? Look::kArea : Look::kLine,
        &SeriesPoint::blocks_in_use);
  }
  if (runs.size() == 1) {
    chart.note = "Share of a worker's blocks that requests held, and share that was not free.";
    add("resident", runs[0].report, Look::kLine, &SeriesPoint::blocks_resident);
    const Report& report = runs[0].report;
    for (const sim::TierCounts& tier : report.tiers) {
      const auto capacity = static_cast<double>(tier.capacity);
      chart.series.push_back({.name = to_string(tier.level),
                              .look = Look::kLine,
                              .points = over_time(report, [&](const SeriesPoint& point) {
                                return std::optional(share(point.below[sim::below_index(tier.level)], capacity));
                              })});
    }
  }
  return chart;
}

page::Chart waiting_chart(Runs runs) {
  page::Chart chart = time_chart(
      runs, "Requests waiting", [](const SeriesPoint& point) { return std::optional(point.waiting); }, Look::kArea);
  chart.note = "Requests of a worker that had arrived and were not computed yet, on average.";
  return chart;
}

page::Chart tokens_chart(Runs runs) {
  page::Chart chart = time_chart(runs, "Tokens a second",
                                 [](const SeriesPoint& point) { return std::optional(point.prompt_tokens_per_s); });
  chart.note = "Prompt tokens that all workers computed per second; hits reduce them.";
  if (runs.size() == 1) {
    chart.note = "Prompt tokens that all workers computed, and tokens that they generated.";
    chart.series[0].name = "prompt";
    chart.series.push_back({.name = "output", .points = over_time(runs[0].report, [](const SeriesPoint& point) {
                                                return std::optional(point.output_tokens_per_s);
                                              })});
  }
  return chart;
}

// " · G2 12.0 %, G3 3.1 %"; empty if there are no lower tiers.
std::string hits_below(const Report& report) {
  std::string text;
  for (const sim::TierCounts& tier : report.tiers) {
    text +=
        str_cat(text.empty() ? " · " : ", ", to_string(tier.level), " ", share_text(report.loaded_ratio(tier.level)));
  }
  return text;
}

std::vector<page::Figure> figures_of(const Report& report) {
  const sim::ReplayCounts& counts = report.counts;
  const sim::Latencies& latencies = report.latencies;
  std::vector<page::Figure> figures = {
      {"Hit ratio", share_text(report.reused_ratio()), str_cat("of the prompt tokens", hits_below(report))},
      {"Time to first token", ms_text(latencies.ttft_ms.median), "median · p99 " + ms_text(latencies.ttft_ms.p99)},
      {"Prompt tokens saved", short_text(counts.saved_tokens),
       str_cat(short_text(counts.computed_tokens), " computed")},
      {"Requests answered", with_commas(counts.completed),
       str_cat("of ", with_commas(counts.arrived), " in ", ms_text(report.duration_ms))},
      {"Blocks evicted", short_text(report.cache.evicted), str_cat(short_text(report.cache.stored_blocks), " stored")},
      {"Peak use",
       share_text(share(static_cast<double>(report.cache.peak_in_use), static_cast<double>(report.cache.capacity))),
       "of a worker's blocks"}};
  if (latencies.itl_ms.count > 0) {  // 0 if every request has one token
    figures.insert(
        figures.begin() + 2,
        {{"Between tokens", ms_text(latencies.itl_ms.median), "median · p99 " + ms_text(latencies.itl_ms.p99)},
         {"Output tokens a second", page::format_short(report.per_second(counts.output_tokens)),
          str_cat(short_text(counts.output_tokens), " in all")}});
  }
  return figures;
}

page::Table latency_table(const sim::Latencies& latencies) {
  page::Table table{.title = "Latencies", .head = {"", "mean", "p50", "p75", "p90", "p95", "p99", "max"}};
  const auto add = [&](const char* name, const sim::Distribution& values) {
    if (values.count == 0) {
      return;
    }
    std::vector<page::Cell>& row = table.rows.emplace_back();
    row.push_back({name});
    for (const double value :
         {values.mean, values.median, values.p75, values.p90, values.p95, values.p99, values.max}) {
      row.push_back({ms_text(value)});
    }
  };
  add("Time to first token (TTFT)", latencies.ttft_ms);
  add("In the queue", latencies.queue_ms);
  add("First to second token (TTST)", latencies.ttst_ms);
  add("Between tokens (ITL)", latencies.itl_ms);
  add("Per output token (TPOT)", latencies.tpot_ms);
  add("Arrival to last token (E2E)", latencies.e2e_ms);
  add("Waiting for a load", latencies.load_ms);
  return table;
}

// One row of the table: a measure of all runs, with the best one marked.
struct Measure {
  const char* name;
  Unit unit;
  enum class Better : std::uint8_t { kMore, kLess, kNeither } better;
  double (*value)(const Report&);
};
using Better = Measure::Better;

constexpr Measure kMeasures[] = {
    {"Hit ratio", Unit::kShare, Better::kMore, [](const Report& r) { return r.reused_ratio(); }},
    {"TTFT, mean", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.ttft_ms.mean; }},
    {"TTFT, median", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.ttft_ms.median; }},
    {"TTFT, p99", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.ttft_ms.p99; }},
    {"ITL, mean", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.itl_ms.mean; }},
    {"ITL, p99", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.itl_ms.p99; }},
    {"E2E, mean", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.e2e_ms.mean; }},
    {"E2E, p99", Unit::kMilliseconds, Better::kLess, [](const Report& r) { return r.latencies.e2e_ms.p99; }},
    {"In the queue, mean", Unit::kMilliseconds, Better::kLess,
     [](const Report& r) { return r.latencies.queue_ms.mean; }},
    {"Output tokens a second", Unit::kNumber, Better::kMore,
     [](const Report& r) { return r.per_second(r.counts.output_tokens); }},
    {"Prompt tokens computed", Unit::kNumber, Better::kLess,
     [](const Report& r) { return count(r.counts.computed_tokens); }},
    {"Preemptions", Unit::kNumber, Better::kLess, [](const Report& r) { return count(r.counts.preemptions); }},
    {"Blocks evicted", Unit::kNumber, Better::kNeither, [](const Report& r) { return count(r.cache.evicted); }},
    {"Peak use", Unit::kShare, Better::kNeither,
     [](const Report& r) { return share(count(r.cache.peak_in_use), count(r.cache.capacity)); }},
    {"Requests answered", Unit::kNumber, Better::kMore, [](const Report& r) { return count(r.counts.completed); }},
};

page::Table runs_table(Runs runs) {
  page::Table table{.title = "Side by side", .note = "The best of each row stands out.", .head = {""}};
  for (const ReplayRun& run : runs) {
    table.head.push_back(run.name);
  }
  for (const Measure& measure : kMeasures) {
    std::vector<double> values;
    for (const ReplayRun& run : runs) {
      values.push_back(measure.value(run.report));
    }
    const auto [least, most] = std::ranges::minmax(values);
    if (least == 0 && most == 0) {  // no preemptions, or no request with two tokens
      continue;
    }
    const std::string best = page::format(measure.better == Better::kMore ? most : least, measure.unit);
    // Values that print the same count as equal.
    const bool differ =
        measure.better != Better::kNeither && page::format(least, measure.unit) != page::format(most, measure.unit);
    std::vector<page::Cell>& row = table.rows.emplace_back();
    row.push_back({measure.name});
    for (const double value : values) {
      std::string text = page::format(value, measure.unit);
      const bool is_best = differ && text == best;
      row.push_back({std::move(text), is_best ? page::Cell::Look::kBest : page::Cell::Look::kPlain});
    }
  }
  return table;
}

// The tier whose size differs between the runs, if it is the only one.
std::optional<CacheLevel> varied_tier(Runs runs) {
  std::optional<CacheLevel> varied;
  for (const CacheLevel level : {CacheLevel::kG1, CacheLevel::kG2, CacheLevel::kG3}) {
    const bool differs = std::ranges::any_of(
        runs, [&](const ReplayRun& run) { return bytes_of(run, level) != bytes_of(runs[0], level); });
    if (differs && varied) {
      return std::nullopt;
    }
    varied = differs ? level : varied;
  }
  return varied;
}

// Hit ratio, TTFT and cost over the size of a tier: where they level off, more memory brings nothing.
std::vector<page::Chart> capacity_charts(Runs runs, CacheLevel level) {
  constexpr const char* kNames[] = {"device memory", "host memory", "disk"};
  const std::string name = kNames[index_of(level)];
  std::vector<const ReplayRun*> sorted;
  for (const ReplayRun& run : runs) {
    sorted.push_back(&run);
  }
  std::ranges::sort(sorted, {}, [&](const ReplayRun* run) { return bytes_of(*run, level); });
  const auto chart = [&](const std::string& measure, const std::string& note, Unit unit) {
    return page::Chart{.title = str_cat(measure, " by size of the ", name),
                       .note = note,
                       .x = {.label = str_cat("GB of ", name, " of a worker"), .from = 0},
                       .y = {.label = measure, .unit = unit, .from = 0}};
  };
  const auto line = [&](const std::string& title, const std::function<double(const ReplayRun&)>& value,
                        Look look = Look::kLine) {
    page::Series series{.name = title, .look = look};
    for (const ReplayRun* run : sorted) {
      series.points.push_back({.x = bytes_of(*run, level) / 1e9, .y = value(*run)});
    }
    return series;
  };
  page::Chart hits = chart("Hit ratio", "Share of the prompt tokens that were not computed again.", Unit::kShare);
  hits.y.to = 1;
  hits.series = {line("Hit ratio", [](const ReplayRun& run) { return run.report.reused_ratio(); }, Look::kArea)};
  page::Chart ttft = chart("Time to first token", "Mean and 99th percentile.", Unit::kMilliseconds);
  ttft.series = {line("mean", [](const ReplayRun& run) { return run.report.latencies.ttft_ms.mean; }),
                 line("p99", [](const ReplayRun& run) { return run.report.latencies.ttft_ms.p99; }, Look::kThin)};
  page::Chart cost =
      chart("Cost", "Dollars for a million prompt tokens: GPUs while they compute, tiers all the time.", Unit::kNumber);
  cost.series = {line("GPUs and tiers", [](const ReplayRun& run) { return cost_of(run).all(); }),
                 line("tiers", [](const ReplayRun& run) { return cost_of(run).tiers; }, Look::kThin)};
  return {std::move(hits), std::move(ttft), std::move(cost)};
}

// Where the prompt tokens of each run came from, and what the tiers did.
page::Table source_table(Runs runs) {
  page::Table table{.title = "Where prompt tokens came from",
                    .note = "At all admissions. Not loaded: a tier had them, and computing them was faster.",
                    .head = {"", "device", "host", "disk", "computed", "not loaded", "load, mean", "load, p99"}};
  for (const ReplayRun& run : runs) {
    const TokenSources sources = sources_of(run.report);
    const auto part = [&](std::uint64_t tokens) {
      return page::Cell{str_cat(short_text(tokens), " (", share_text(share(count(tokens), count(sources.all()))), ")")};
    };
    const sim::Distribution& loads = run.report.latencies.load_ms;
    table.rows.push_back({{run.name.empty() ? "tokens" : run.name},
                          part(sources.device),
                          part(sources.host),
                          part(sources.disk),
                          part(sources.computed),
                          {short_text(run.report.counts.rejected_tokens)},
                          {loads.count == 0 ? "" : ms_text(loads.mean)},
                          {loads.count == 0 ? "" : ms_text(loads.p99)}});
  }
  return table;
}

page::Table tier_table(Runs runs) {
  page::Table table{.title = "What the tiers did",
                    .note = "Written is also given as a multiple of the KV that the engines computed.",
                    .head = {"", "blocks of a worker", "written", "times", "read", "evicted", "failed", "times out"}};
  for (const ReplayRun& run : runs) {
    for (const sim::TierCounts& tier : run.report.tiers) {
      table.rows.push_back({{str_cat(run.name, run.name.empty() ? "" : ": ", to_string(tier.level))},
                            {with_commas(tier.capacity)},
                            {str_cat(page::format_short(count(tier.bytes_written) / 1e9), " GB")},
                            {fixed(run.report.write_amplification(tier), 2)},
                            {str_cat(page::format_short(count(tier.bytes_read) / 1e9), " GB")},
                            {short_text(tier.evicted)},
                            {short_text(tier.failed)},
                            {short_text(tier.times_out)}});
    }
  }
  return table;
}

void add_tier_tables(Runs runs, page::Section& section) {
  if (std::ranges::any_of(runs, [](const ReplayRun& run) { return !run.report.tiers.empty(); })) {
    section.tables.push_back(source_table(runs));
    section.tables.push_back(tier_table(runs));
  }
}

// One difference that compare_runs() found.
std::string difference_value(const Difference& difference, double value) {
  return difference.unit == "ms" ? ms_text(value) : share_text(value);
}

page::Table difference_table(const Comparison& comparison) {
  page::Table table{.title = str_cat(comparison.other, " against ", comparison.base),
                    .note = str_cat("Over the ", with_commas(comparison.requests), " requests that both answered."),
                    .head = {"", comparison.base, comparison.other, "change", "matters"}};
  for (const Difference& difference : comparison.differences) {
    if (difference.base == 0 && difference.other == 0) {
      continue;
    }
    const double relative = difference.relative();
    // Higher is better only for the hit ratio.
    const bool better = difference.unit == "ms" ? relative < 0 : relative > 0;
    using CellLook = page::Cell::Look;
    const CellLook look = !difference.matters ? CellLook::kPlain : better ? CellLook::kBest : CellLook::kWorse;
    table.rows.push_back({{std::string(difference.measure)},
                          {difference_value(difference, difference.base)},
                          {difference_value(difference, difference.other)},
                          {str_cat(relative > 0 ? "+" : "", share_text(relative)), look},
                          {difference.matters ? "yes" : "no", look}});
  }
  return table;
}

std::string workers_text(const ReplaySettings& settings) {
  return str_cat(settings.workers == 1 ? "one simulated worker with "
                                       : str_cat(with_commas(settings.workers), " simulated workers, each with "),
                 settings_text(settings), "; eviction by ", to_string(settings.manager.device.policy),
                 ", placement by ", settings.placement);
}

std::vector<page::Chart> charts_of(Runs runs) {
  return {hit_chart(runs),      ttft_chart(runs),    ttft_distribution(runs), use_chart(runs),
          eviction_chart(runs), waiting_chart(runs), tokens_chart(runs)};
}

page::Page single_page(const ReplayRun& run) {
  page::Section section{.figures = figures_of(run.report),
                        .charts = charts_of({&run, 1}),
                        .tables = {latency_table(run.report.latencies)}};
  add_tier_tables({&run, 1}, section);
  return {.title = {},
          .lead = str_cat("What ", workers_text(run.settings), ", would make of this traffic.",
                          run.report.complete ? "" : " The run was stopped before its end."),
          .sections = {std::move(section)}};
}

page::Page compared_page(Runs runs, std::span<const Comparison> comparisons) {
  page::Section section{.tables = {runs_table(runs)}};
  if (const std::optional<CacheLevel> level = varied_tier(runs)) {
    section.charts = capacity_charts(runs, *level);
  }
  std::ranges::move(charts_of(runs), std::back_inserter(section.charts));
  add_tier_tables(runs, section);
  bool complete = true;
  for (const ReplayRun& run : runs) {
    complete = complete && run.report.complete;
    section.figures.push_back({.label = run.name,
                               .value = share_text(run.report.reused_ratio()),
                               .note = str_cat("hit ratio · mean TTFT ", ms_text(run.report.latencies.ttft_ms.mean),
                                               ", p99 ", ms_text(run.report.latencies.ttft_ms.p99))});
  }
  page::Section differences{.title = "Which differences matter",
                            .text =
                                "A difference matters when groups of neighbouring requests agree on it, and it is "
                                "1 % or more. Everything else may be chance."};
  for (const Comparison& comparison : comparisons) {
    differences.tables.push_back(difference_table(comparison));
  }
  return {
      .title = {},
      .lead = str_cat(runs.size(), " settings side by side: ", workers_text(runs[0].settings),
                      ", except for what the names say.", complete ? "" : " The runs were stopped before their end."),
      .sections = {std::move(section), std::move(differences)}};
}

}  // namespace

page::Page replay_page(const std::string& trace, Runs runs, std::span<const Comparison> comparisons,
                       const std::string& command) {
  CAIRN_CHECK(!runs.empty(), "a page of no runs");
  page::Page page = runs.size() == 1 ? single_page(runs[0]) : compared_page(runs, comparisons);
  page.title = str_cat("Replay of ", trace);
  page.command = command;
  return page;
}

}  // namespace cairn::cli
