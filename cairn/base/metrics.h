// Metrics: the figures that an operator watches, by name and labels: counters, gauges, histograms.
//
// Does:     components ask for their figures once, keep the references, and record without a lock. Whoever shows them
//           takes to_prometheus() (text exposition format 0.0.4) or snapshot() (for JSON and tables).
// Owner:    whoever owns the components; the registry outlives them, and with it every reference it gave out. What a
//           gauge_function() calls lives until the registry is no longer read.
// Threads:  any, all of it. Recording is relaxed: figures of one moment may be off by what is being recorded, and order
//           nothing. The lock is a leaf; a gauge_function() is called outside it, and may take any lock.
// Aborts:   names or labels that Prometheus would not take, a name that is of another kind already, two functions for
//           one gauge: all of them are written in our sources.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"

namespace cairn {

// {{"tier", "G2"}, {"edge", "G1-G2"}}; in any order, each name once.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Only grows. On a cache line of its own: two threads that count different things do not disturb each other.
class alignas(64) Counter {
 public:
  void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class alignas(64) Gauge {
 public:
  void set(std::int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(std::int64_t n) { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// How many values fell where. The bounds are powers of two and the middles between them, two an octave, so that an
// estimate is off by less than half. Beyond the last bound values are counted, and no longer told apart.
class alignas(64) Histogram {
 public:
  enum class Unit : std::uint8_t {
    kSeconds,  // durations: 2^10 ns, about 1 us, to 2^37 ns, about 137 s
    kNumber,   // bytes, blocks, tokens: 1 to 2^40
  };
  static constexpr std::size_t kMostBounds = 81;

  struct Summary {
    std::uint64_t count = 0;
    double sum = 0;  // this and the following in seconds, or plain; 0 while nothing was recorded
    double p50 = 0;
    double p90 = 0;
    double p99 = 0;
  };

  explicit Histogram(Unit unit) : unit_(unit) {}

  // Of kSeconds; less than none counts as none.
  void record(Duration duration) { add(Unit::kSeconds, duration.count() > 0 ? std::uint64_t(duration.count()) : 0); }
  // Of kNumber.
  void record(std::uint64_t number) { add(Unit::kNumber, number); }

  [[nodiscard]] Unit unit() const { return unit_; }
  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] double sum() const;
  // An estimate of the value that the share `q` (0 to 1) of all are not above. 0 while nothing was recorded; the last
  // bound for what is beyond it.
  [[nodiscard]] double quantile(double q) const;
  [[nodiscard]] Summary summary() const;

  // The upper bounds, in seconds or plain, and how many values are in the bucket below each; the last count is of those
  // beyond all bounds.
  [[nodiscard]] std::size_t bounds() const;
  [[nodiscard]] double bound(std::size_t i) const;
  [[nodiscard]] std::vector<std::uint64_t> counts() const;

 private:
  void add(Unit unit, std::uint64_t value);
  [[nodiscard]] double in_unit(double value) const;
  [[nodiscard]] double quantile(const std::vector<std::uint64_t>& counts, double q) const;

  const Unit unit_;
  std::atomic<std::uint64_t> sum_{0};
  std::array<std::atomic<std::uint64_t>, kMostBounds + 1> counts_{};
};

enum class MetricKind : std::uint8_t { kCounter, kGauge, kHistogram };
// "counter", "gauge", "histogram"
[[nodiscard]] std::string_view to_string(MetricKind kind);

class Metrics {
 public:
  Metrics() = default;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The same name and labels give the same object. The help of a name is the one that was given first.
  Counter& counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  // Asked whenever the figures are read, for what is known elsewhere already.
  void gauge_function(std::string_view name, std::string_view help, const MetricLabels& labels,
                      std::function<double()> function);
  // The same for what only grows.
  void counter_function(std::string_view name, std::string_view help, const MetricLabels& labels,
                        std::function<double()> function);
  Histogram& histogram(std::string_view name, std::string_view help, const MetricLabels& labels = {},
                       Histogram::Unit unit = Histogram::Unit::kSeconds);

  struct Sample {
    std::string name;
    MetricLabels labels;  // by name
    MetricKind kind = MetricKind::kCounter;
    double value = 0;              // of counters and gauges
    Histogram::Summary histogram;  // of histograms
  };
  // All figures, by name, then by labels.
  [[nodiscard]] std::vector<Sample> snapshot() const;
  [[nodiscard]] std::string to_prometheus() const;

 private:
  // Neither moves once it is made: their addresses are given out.
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
  // The place of a figure; empty where it is new.
  std::unique_ptr<Figure>& place(MetricKind kind, std::string_view name, std::string_view help, MetricLabels labels)
      CAIRN_REQUIRES(mutex_);
  // What there is now. Nothing is ever taken out, so that the rows are good without the lock.
  [[nodiscard]] std::vector<Row> rows() const;

  mutable Mutex mutex_{LockRank::kMetrics};
  std::map<std::string, Family, std::less<>> families_ CAIRN_GUARDED_BY(mutex_);
};

}  // namespace cairn
