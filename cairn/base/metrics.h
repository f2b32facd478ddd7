// Metrics: the registry of metrics that an operator watches: counters, gauges and histograms, by name and labels.
//
// Components get their metrics once, keep the references, and record without a lock. to_prometheus() writes all of them in
// the text exposition format 0.0.4; snapshot() returns them for JSON and tables.
//
// Thread safety: safe from any thread. Recording uses relaxed atomics: a reading may miss what is being recorded at that
// moment. A gauge_function() is called without the lock and may take any lock.
// Ownership: the registry outlives the components, and every reference that it returned stays valid as long. What a
// gauge_function() uses must live until the registry is no longer read.
// Errors: aborts on a name or label that Prometheus does not accept, a name that is of another kind already, and two
// functions for one gauge, because all of these are constants in our sources.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"

namespace cairn {

// {{"tier", "G2"}, {"link", "G1-G2"}}; in any order, each name once.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Only grows. Has its own cache line, so that threads with different counters do not slow each other down.
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

// Counts values in buckets. The bounds are the powers of two and the middles between them, so that an estimate is off by
// less than half. Values beyond the last bound share one bucket.
class alignas(64) Histogram {
 public:
  enum class Unit : std::uint8_t {
    kSeconds,  // durations: 2^10 ns, about 1 us, to 2^37 ns, about 137 s
    kNumber,   // bytes, blocks, tokens: 1 to 2^40
  };
  static constexpr std::size_t kMostBounds = 81;

  struct Summary {
    std::uint64_t count = 0;
    double sum = 0;  // this and the following in seconds or plain numbers; 0 if nothing was recorded
    double p50 = 0;
    double p90 = 0;
    double p99 = 0;
  };

  explicit Histogram(Unit unit) : unit_(unit) {}

  // For kSeconds. A negative duration counts as 0.
  void record(Duration duration) { add(Unit::kSeconds, duration.count() > 0 ? std::uint64_t(duration.count()) : 0); }
  // For kNumber.
  void record(std::uint64_t number) { add(Unit::kNumber, number); }

  [[nodiscard]] Unit unit() const { return unit_; }
  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] double sum() const;
  // An estimate of the quantile `q` (0 to 1). 0 if nothing was recorded; at most the last bound.
  [[nodiscard]] double quantile(double q) const;
  [[nodiscard]] Summary summary() const;

  // The upper bounds of the buckets, in seconds or plain numbers, and the count of each bucket; the last count is of the
  // values beyond all bounds.
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
  // `common`: labels of all metrics.
  explicit Metrics(MetricLabels common = {});
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  // The same name and labels return the same object. The first help text that is given for a name is kept.
  Counter& counter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
  // `function` is called whenever the metrics are read, for values that are kept elsewhere.
  void gauge_function(std::string_view name, std::string_view help, const MetricLabels& labels,
                      std::function<double()> function);
  // The same for a value that only grows.
  void counter_function(std::string_view name, std::string_view help, const MetricLabels& labels,
                        std::function<double()> function);
  Histogram& histogram(std::string_view name, std::string_view help, const MetricLabels& labels = {},
                       Histogram::Unit unit = Histogram::Unit::kSeconds);

  struct Sample {
    std::string name;
    MetricLabels labels;  // sorted by name
    MetricKind kind = MetricKind::kCounter;
    double value = 0;              // of counters and gauges
    Histogram::Summary histogram;  // of histograms
  };
  // All metrics, by name, then by labels.
  [[nodiscard]] std::vector<Sample> snapshot() const;
  [[nodiscard]] std::string to_prometheus() const;

 private:
  struct Registry;
  const std::unique_ptr<Registry> registry_;
};

}  // namespace cairn
