#include "cairn/base/metrics.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <variant>

#include "cairn/base/check.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

// The first bound is 2^first, the last 2^last; there is one more between two powers of two.
struct Octaves {
  unsigned first;
  unsigned last;
};

constexpr Octaves octaves(Histogram::Unit unit) {
  return unit == Histogram::Unit::kSeconds ? Octaves{10, 37} : Octaves{0, 40};
}

constexpr std::size_t bound_count(Histogram::Unit unit) {
  return 2 * std::size_t{octaves(unit).last - octaves(unit).first} + 1;
}
static_assert(bound_count(Histogram::Unit::kSeconds) <= Histogram::kMostBounds);
static_assert(bound_count(Histogram::Unit::kNumber) <= Histogram::kMostBounds);

// The index of the first bound that is not below the value, or the number of bounds.
std::size_t bucket(Histogram::Unit unit, std::uint64_t value) {
  const Octaves range = octaves(unit);
  if (value <= std::uint64_t{1} << range.first) {
    return 0;
  }
  if (value > std::uint64_t{1} << range.last) {
    return bound_count(unit);
  }
  // The value is above 2^octave and at most the next power.
  const std::uint64_t below = value - 1;
  const auto octave = static_cast<unsigned>(std::bit_width(below)) - 1;
  const bool upper_half = octave == 0 || ((below >> (octave - 1)) & 1U) != 0;
  return 2 * std::size_t{octave - range.first} + (upper_half ? 2 : 1);
}

std::string number(double value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf";
  }
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

bool is_name(std::string_view name, bool colons) {
  const auto fits = [colons](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (colons && c == ':');
  };
  return !name.empty() && (name[0] < '0' || name[0] > '9') && std::ranges::all_of(name, fits);
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) {
      out += '\\';
    }
    out += c;
  }
}

// `more` is appended to the labels: the bound of a bucket.
void append_line(std::string& out, std::string_view name, const MetricLabels& labels, std::string_view more,
                 std::string_view value) {
  out += name;
  char before = '{';
  for (const auto& [label, text] : labels) {
    out += before;
    out += label;
    out += "=\"";
    append_escaped(out, text, true);
    out += '"';
    before = ',';
  }
  if (!more.empty()) {
    out += before;
    out += more;
    before = ',';
  }
  if (before == ',') {
    out += '}';
  }
  out += ' ';
  out += value;
  out += '\n';
}

void append_histogram(std::string& out, const std::string& name, const MetricLabels& labels,
                      const Histogram& histogram) {
  // Read before the counts: values recorded in between make the mean too small, but never larger than every value.
  const double sum = histogram.sum();
  const std::vector<std::uint64_t> counts = histogram.counts();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const std::string bound = i < histogram.bounds() ? number(histogram.bound(i)) : "+Inf";
    append_line(out, name + "_bucket", labels, str_cat("le=\"", bound, "\""), std::to_string(total));
  }
  append_line(out, name + "_sum", labels, {}, number(sum));
  append_line(out, name + "_count", labels, {}, std::to_string(total));
}

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

void Histogram::add(Unit unit, std::uint64_t value) {
  CAIRN_DCHECK(unit == unit_, "a histogram takes durations or numbers, not both");
  counts_[bucket(unit, value)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

double Histogram::in_unit(double value) const { return unit_ == Unit::kSeconds ? value / 1e9 : value; }

double Histogram::sum() const { return in_unit(static_cast<double>(sum_.load(std::memory_order_relaxed))); }

std::size_t Histogram::bounds() const { return bound_count(unit_); }

double Histogram::bound(std::size_t i) const {
  const double power = std::ldexp(1.0, static_cast<int>(octaves(unit_).first + i / 2));
  return in_unit(i % 2 == 0 ? power : power * 1.5);
}

std::vector<std::uint64_t> Histogram::counts() const {
  std::vector<std::uint64_t> counts(bounds() + 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = counts_[i].load(std::memory_order_relaxed);
  }
  return counts;
}

std::uint64_t Histogram::count() const {
  const std::vector<std::uint64_t> all = counts();
  return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
}

double Histogram::quantile(const std::vector<std::uint64_t>& counts, double q) const {
  const auto total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const double rank = std::clamp(q, 0.0, 1.0) * static_cast<double>(total);
  double below = 0;
  for (std::size_t i = 0; i < bounds(); ++i) {
    const auto here = static_cast<double>(counts[i]);
    if (here > 0 && below + here >= rank) {
      // Assumes that the values of a bucket are spread evenly.
      const double from = i == 0 ? 0 : bound(i - 1);
      return from + (bound(i) - from) * (rank - below) / here;
    }
    below += here;
  }
  return total == 0 ? 0 : bound(bounds() - 1);
}

double Histogram::quantile(double q) const { return quantile(counts(), q); }

Histogram::Summary Histogram::summary() const {
  const double all = sum();
  const std::vector<std::uint64_t> in = counts();
  return {.count = std::accumulate(in.begin(), in.end(), std::uint64_t{0}),
          .sum = all,
          .p50 = quantile(in, 0.5),
          .p90 = quantile(in, 0.9),
          .p99 = quantile(in, 0.99)};
}

std::string_view to_string(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "unknown";
}

struct Metrics::Registry {
  explicit Registry(MetricLabels labels) : common(std::move(labels)) {}

  // Never moved: references to them are given out.
  using Figure = std::variant<Counter, Gauge, std::function<double()>, Histogram>;
  struct Family {
    MetricKind kind;
    std::string help;
    std::map<MetricLabels, std::unique_ptr<Figure>> figures = {};
  };
  struct Row {
    const std::string* name;
    const Family* family;
    const MetricLabels* labels;
    const Figure* figure;
  };

  void add_function(MetricKind kind, std::string_view name, std::string_view help, const MetricLabels& labels,
                    std::function<double()> function);
  // The place of a metric; null if it is new.
  std::unique_ptr<Figure>& place(MetricKind kind, std::string_view name, std::string_view help, MetricLabels labels)
      CAIRN_REQUIRES(mutex);
  // All metrics. They are never removed, so the rows stay valid without the lock.
  [[nodiscard]] std::vector<Row> rows() const;

  const MetricLabels common;  // of all metrics
  mutable Mutex mutex{LockRank::kMetrics};
  std::map<std::string, Family, std::less<>> families CAIRN_GUARDED_BY(mutex);
};

Metrics::Metrics(MetricLabels common) : registry_(std::make_unique<Registry>(std::move(common))) {}
Metrics::~Metrics() = default;

std::unique_ptr<Metrics::Registry::Figure>& Metrics::Registry::place(MetricKind kind, std::string_view name,
                                                                     std::string_view help, MetricLabels labels) {
  CAIRN_CHECK(is_name(name, true), str_cat("'", name, "' is not a valid name of a metric"));
  labels.insert(labels.end(), common.begin(), common.end());
  std::ranges::sort(labels);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& label = labels[i].first;
    CAIRN_CHECK(is_name(label, false) && label != "le", str_cat("'", label, "' is not a valid name of a label"));
    CAIRN_CHECK(i == 0 || labels[i - 1].first != label, str_cat("the label '", label, "' is given twice"));
  }
  auto at = families.find(name);
  if (at == families.end()) {
    at = families.emplace(name, Family{.kind = kind, .help = std::string(help)}).first;
  }
  CAIRN_CHECK(at->second.kind == kind,
              str_cat("the metric ", name, " is a ", to_string(at->second.kind), ", not a ", to_string(kind)));
  return at->second.figures[std::move(labels)];
}

Counter& Metrics::counter(std::string_view name, std::string_view help, const MetricLabels& labels) {
  const MutexLock lock(registry_->mutex);
  std::unique_ptr<Registry::Figure>& figure = registry_->place(MetricKind::kCounter, name, help, labels);
  if (figure == nullptr) {
    figure = std::make_unique<Registry::Figure>(std::in_place_type<Counter>);
  }
  return std::get<Counter>(*figure);
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, const MetricLabels& labels) {
  const MutexLock lock(registry_->mutex);
  std::unique_ptr<Registry::Figure>& figure = registry_->place(MetricKind::kGauge, name, help, labels);
  if (figure == nullptr) {
    figure = std::make_unique<Registry::Figure>(std::in_place_type<Gauge>);
  }
  CAIRN_CHECK(std::holds_alternative<Gauge>(*figure), str_cat("the metric ", name, " comes from a function"));
  return std::get<Gauge>(*figure);
}

void Metrics::gauge_function(std::string_view name, std::string_view help, const MetricLabels& labels,
                             std::function<double()> function) {
  registry_->add_function(MetricKind::kGauge, name, help, labels, std::move(function));
}

void Metrics::counter_function(std::string_view name, std::string_view help, const MetricLabels& labels,
                               std::function<double()> function) {
  registry_->add_function(MetricKind::kCounter, name, help, labels, std::move(function));
}

void Metrics::Registry::add_function(MetricKind kind, std::string_view name, std::string_view help,
                                     const MetricLabels& labels, std::function<double()> function) {
  CAIRN_CHECK(function != nullptr, str_cat("the metric ", name, " has no function"));
  const MutexLock lock(mutex);
  std::unique_ptr<Figure>& figure = place(kind, name, help, labels);
  CAIRN_CHECK(figure == nullptr, str_cat("the metric ", name, " has a source already"));
  figure = std::make_unique<Figure>(std::in_place_type<std::function<double()>>, std::move(function));
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, const MetricLabels& labels,
                              Histogram::Unit unit) {
  const MutexLock lock(registry_->mutex);
  std::unique_ptr<Registry::Figure>& figure = registry_->place(MetricKind::kHistogram, name, help, labels);
  if (figure == nullptr) {
    figure = std::make_unique<Registry::Figure>(std::in_place_type<Histogram>, unit);
  }
  auto& histogram = std::get<Histogram>(*figure);
  CAIRN_CHECK(histogram.unit() == unit, str_cat("the metric ", name, " has another unit"));
  return histogram;
}

std::vector<Metrics::Registry::Row> Metrics::Registry::rows() const {
  const MutexLock lock(mutex);
  std::vector<Row> rows;
  for (const auto& [name, family] : families) {
    for (const auto& [labels, figure] : family.figures) {
      rows.push_back({.name = &name, .family = &family, .labels = &labels, .figure = figure.get()});
    }
  }
  return rows;
}

std::vector<Metrics::Sample> Metrics::snapshot() const {
  std::vector<Sample> samples;
  for (const Registry::Row& row : registry_->rows()) {
    Sample& sample = samples.emplace_back();
    sample.name = *row.name;
    sample.labels = *row.labels;
    sample.kind = row.family->kind;
    std::visit(Overloaded{[&](const Counter& counter) { sample.value = static_cast<double>(counter.value()); },
                          [&](const Gauge& gauge) { sample.value = static_cast<double>(gauge.value()); },
                          [&](const std::function<double()>& function) { sample.value = function(); },
                          [&](const Histogram& histogram) { sample.histogram = histogram.summary(); }},
               *row.figure);
  }
  return samples;
}

std::string Metrics::to_prometheus() const {
  std::string out;
  const Registry::Family* last = nullptr;
  for (const Registry::Row& row : registry_->rows()) {
    const std::string& name = *row.name;
    if (row.family != last) {
      last = row.family;
      out += str_cat("# HELP ", name, " ");
      append_escaped(out, last->help, false);
      out += str_cat("\n# TYPE ", name, " ", to_string(last->kind), "\n");
    }
    std::visit(
        Overloaded{
            [&](const Counter& counter) { append_line(out, name, *row.labels, {}, std::to_string(counter.value())); },
            [&](const Gauge& gauge) { append_line(out, name, *row.labels, {}, std::to_string(gauge.value())); },
            [&](const std::function<double()>& function) {
              append_line(out, name, *row.labels, {}, number(function()));
            },
            [&](const Histogram& histogram) { append_histogram(out, name, *row.labels, histogram); }},
        *row.figure);
  }
  return out;
}

}  // namespace cairn
