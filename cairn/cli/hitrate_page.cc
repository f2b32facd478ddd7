#include "cairn/cli/hitrate_page.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

using Measure = double (lab::HitCounts::*)() const;

// With more policies than this, the important ones are drawn bolder.
constexpr std::size_t kFewPolicies = 4;
// Beyond this factor the small capacities would crowd at one end of a linear axis.
constexpr double kLogFrom = 5;
constexpr std::size_t kMostFigures = 6;

// The rows of one policy, by rising capacity.
struct Curve {
  std::string policy;
  std::vector<lab::Row> rows;

  [[nodiscard]] bool is_bound() const { return lab::is_bound(policy); }
};

// The order of the curves: the most interesting policies first, the bounds last.
int rank_of(std::string_view policy) {
  return policy == "adaptive" ? 0 : policy == "lru" ? 1 : !lab::is_bound(policy) ? 2 : policy == "infinite" ? 4 : 3;
}

std::vector<Curve> curves_of(const std::vector<lab::Row>& rows) {
  std::vector<Curve> curves;
  for (const lab::Row& row : rows) {
    auto curve = std::ranges::find(curves, row.policy, &Curve::policy);
    if (curve == curves.end()) {
      curve = curves.insert(curve, {.policy = row.policy, .rows = {}});
    }
    curve->rows.push_back(row);
  }
  for (Curve& curve : curves) {
    std::ranges::stable_sort(curve.rows, {}, &lab::Row::blocks);
  }
  std::ranges::stable_sort(curves, {}, [](const Curve& curve) { return rank_of(curve.policy); });
  return curves;
}

const Curve* find(const std::vector<Curve>& curves, std::string_view policy) {
  const auto found = std::ranges::find(curves, policy, &Curve::policy);
  return found == curves.end() ? nullptr : &*found;
}

// The policy with the most hits at a capacity, bounds excepted; nullptr if there are only bounds.
const Curve* best_at(const std::vector<Curve>& curves, std::size_t capacity) {
  const Curve* best = nullptr;
  for (const Curve& curve : curves) {
    if (!curve.is_bound() &&
        (best == nullptr || curve.rows[capacity].counts.block_ratio() > best->rows[capacity].counts.block_ratio())) {
      best = &curve;
    }
  }
  return best;
}

bool in_percent(const lab::Row& row) { return row.capacity.ends_with('%'); }

bool in_bytes(const lab::Row& row) { return row.capacity.ends_with('B'); }

std::string capacity_name(const lab::Row& row) {
  if (in_bytes(row)) {
    return row.capacity;
  }
  return in_percent(row) ? row.capacity.substr(0, row.capacity.size() - 1) + "\u00A0%" : with_commas(row.blocks);
}

page::Axis capacity_axis(const Curve& curve, const MeasuredTrace& trace) {
  page::Axis axis;
  for (const lab::Row& row : curve.rows) {
    const double share =
        static_cast<double>(row.blocks) / static_cast<double>(std::max<std::uint64_t>(1, trace.distinct));
    const double bytes = static_cast<double>(row.blocks) * trace.block_size * static_cast<double>(trace.kv_bytes);
    axis.ticks.push_back(
        {.at = static_cast<double>(row.blocks),
         .label = capacity_name(row),
         .below = in_bytes(row) ? page::format(share, page::Unit::kShare) : fixed(bytes / 1e9, 1) + " GB"});
  }
  const lab::Row& first = curve.rows.front();
  axis.label = in_percent(first) ? "Capacity, of the distinct blocks of the trace"
               : in_bytes(first) ? "Capacity, and its share of the distinct blocks of the trace"
                                 : str_cat("Capacity in blocks of ", trace.block_size, " tokens");
  if (curve.rows.back().blocks > kLogFrom * curve.rows.front().blocks) {
    axis.scale = page::Axis::Scale::kLog;
  } else {
    axis.from = 0;
  }
  return axis;
}

page::Series::Look look_of(const Curve& curve, std::size_t policies) {
  if (curve.is_bound()) {
    return page::Series::Look::kBound;
  }
  return policies <= kFewPolicies || rank_of(curve.policy) < 2 ? page::Series::Look::kLine : page::Series::Look::kThin;
}

class TraceSection {
 public:
  explicit TraceSection(const MeasuredTrace& trace) : trace_(trace), curves_(curves_of(trace.rows)) {
    policies_ = static_cast<std::size_t>(std::ranges::count(curves_, false, &Curve::is_bound));
  }

  [[nodiscard]] page::Section make() const {
    page::Section section{
        .title = trace_.name,
        .text = str_cat(with_commas(trace_.requests), " requests ask for ", with_commas(trace_.blocks), " blocks of ",
                        trace_.block_size, " tokens, ", with_commas(trace_.distinct), " of them distinct."),
        .figures = figures()};
    page::Chart hits = chart("Hit ratio over capacity",
                             "Share of the requested blocks that are found, with all blocks "
                             "before them in the request: the part of the prompt that is not computed again.",
                             &lab::HitCounts::block_ratio);
    hits.width = page::Chart::Width::kFull;
    section.charts.push_back(std::move(hits));
    if (find(curves_, "lru") != nullptr && policies_ > 1) {
      section.charts.push_back(gain_chart());
    }
    section.charts.push_back(
        chart("Bytes", "Share of the requested bytes that are found.", &lab::HitCounts::byte_ratio));
    section.charts.push_back(chart("Requests",
                                   "Share of the requests that find at least one block. OPT saves the most blocks, "
                                   "which is not the most requests.",
                                   &lab::HitCounts::request_ratio));
    section.charts.push_back(written_chart());
    section.tables.push_back(table());
    return section;
  }

 private:
  // The hit ratio of the best policy for each capacity.
  [[nodiscard]] std::vector<page::Figure> figures() const {
    std::vector<page::Figure> figures;
    const std::vector<lab::Row>& rows = curves_.front().rows;
    const std::size_t stride = (rows.size() + kMostFigures - 1) / kMostFigures;
    const Curve* lru = find(curves_, "lru");
    const Curve* opt = find(curves_, "opt");
    for (std::size_t i = 0; i < rows.size(); i += stride) {
      const Curve* best = best_at(curves_, i);
      const Curve& shown = best != nullptr ? *best : curves_.front();
      std::string note = shown.policy;
      for (const Curve* other : {lru, opt}) {
        if (other != nullptr && other != &shown) {
          note += str_cat(" · ", other->policy, "\u00A0", ratio_text(other->rows[i]));
        }
      }
      figures.push_back({.label = str_cat("Best with ", capacity_name(rows[i]),
                                          in_percent(rows[i]) || in_bytes(rows[i]) ? "" : " blocks"),
                         .value = ratio_text(shown.rows[i]),
                         .note = std::move(note)});
    }
    return figures;
  }

  static std::string ratio_text(const lab::Row& row) {
    return page::format(row.counts.block_ratio(), page::Unit::kShare);
  }

  [[nodiscard]] page::Chart chart(std::string title, std::string note, Measure measure) const {
    page::Chart chart{.title = std::move(title),
                      .note = std::move(note),
                      .x = capacity_axis(curves_.front(), trace_),
                      .y = {.label = "Hit ratio", .unit = page::Unit::kShare}};
    for (const Curve& curve : curves_) {
      if (curve.policy == "infinite") {  // the same at every capacity
        const double value = (curve.rows.front().counts.*measure)();
        chart.marks.push_back({.across = page::Mark::Across::kY,
                               .at = value,
                               .label = str_cat("infinite cache: ", page::format(value, page::Unit::kShare))});
        continue;
      }
      page::Series& series =
          chart.series.emplace_back(page::Series{.name = curve.policy, .look = look_of(curve, policies_)});
      for (const lab::Row& row : curve.rows) {
        series.points.push_back({.x = static_cast<double>(row.blocks), .y = (row.counts.*measure)()});
      }
    }
    return chart;
  }

  [[nodiscard]] page::Chart gain_chart() const {
    page::Chart chart = this->chart("Gain over LRU",
                                    "Percentage points of hit ratio that a policy adds to LRU's, or "
                                    "takes from it.",
                                    &lab::HitCounts::block_ratio);
    const std::vector<lab::Row>& lru = find(curves_, "lru")->rows;
    chart.marks.clear();
    chart.y = {.label = "Above or below LRU", .unit = page::Unit::kPoints};
    std::erase_if(chart.series, [](const page::Series& series) { return series.look == page::Series::Look::kBound; });
    for (page::Series& series : chart.series) {
      for (std::size_t i = 0; i < series.points.size(); ++i) {
        *series.points[i].y -= lru[i].counts.block_ratio();
      }
    }
    return chart;
  }

  [[nodiscard]] page::Chart written_chart() const {
    page::Chart chart = this->chart("Written to a lower tier",
                                    "Blocks that would be written to the tier below for each "
                                    "block that is hit: the wear of a disk.",
                                    &lab::HitCounts::written_per_hit);
    chart.marks.clear();
    chart.y = {.label = "Blocks written for a hit"};
    std::erase_if(chart.series, [](const page::Series& series) {
      return series.look == page::Series::Look::kBound;  // a bound writes nothing
    });
    return chart;
  }

  [[nodiscard]] page::Table table() const {
    page::Table table{
        .title = "Hit ratio of every policy",
        .note =
            "The best at each capacity stands out; opt, opt-insert and infinite are bounds, which no policy can "
            "pass.",
        .head = {"policy"}};
    for (const lab::Row& row : curves_.front().rows) {
      table.head.push_back(capacity_name(row));
    }
    for (const Curve& curve : curves_) {
      std::vector<page::Cell>& cells = table.rows.emplace_back();
      cells.push_back({curve.policy});
      for (std::size_t i = 0; i < curve.rows.size(); ++i) {
        const Curve* best = best_at(curves_, i);
        const bool first = best != nullptr && !curve.is_bound() &&
                           best->rows[i].counts.block_ratio() == curve.rows[i].counts.block_ratio();
        cells.push_back({ratio_text(curve.rows[i]), first ? page::Cell::Look::kBest : page::Cell::Look::kPlain});
      }
    }
    return table;
  }

  const MeasuredTrace& trace_;
  std::vector<Curve> curves_;
  std::size_t policies_ = 0;
};

}  // namespace

page::Page hitrate_page(const std::vector<MeasuredTrace>& traces, const std::string& command) {
  page::Page page{.title = "What a cache would have hit",
                  .lead =
                      "Requests of recorded traffic, sent through caches of several sizes under each eviction "
                      "policy. OPT knows the future: no policy can hit more with the same capacity.",
                  .command = command};
  for (const MeasuredTrace& trace : traces) {
    if (!trace.rows.empty()) {
      page.sections.push_back(TraceSection(trace).make());
    }
  }
  return page;
}

}  // namespace cairn::cli
