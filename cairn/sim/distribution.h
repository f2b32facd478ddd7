// Distribution: what a set of measured values looks like: exact, whatever its size.
//
// Does:     the value at rank round((n - 1) p / 100) of the sorted ones is percentile p, and the median p50; the
//           standard deviation is that of the population. No values: all of it is 0.
// Threads:  a plain value.
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
  // Values with how often each occurs.
  [[nodiscard]] static Distribution of_counted(std::vector<std::pair<double, std::uint64_t>> values);
};

}  // namespace cairn::sim
