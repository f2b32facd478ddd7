// Distribution: mean, extremes and percentiles of measured values; exact, however many there are.
//
// Percentile p is the value at rank round((n - 1) p / 100) of the sorted values; the median is p50. The standard
// deviation is that of the population. Without values everything is 0.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace cairn::sim {

struct Distribution {
  std::uint64_t count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  double median = 0;
  double p75 = 0;
  double p90 = 0;
  double p95 = 0;
  double p99 = 0;
  double std = 0;

  [[nodiscard]] static Distribution of(std::vector<double> values);
  // Each value comes with the number of its occurrences.
  [[nodiscard]] static Distribution of_counted(std::vector<std::pair<double, std::uint64_t>> values);
};

}  // namespace cairn::sim
