#include "cairn/sim/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace cairn::sim {

Distribution Distribution::of(std::vector<double> values) {
  std::vector<std::pair<double, std::uint64_t>> counted;
  counted.reserve(values.size());
  for (const double value : values) {
    counted.emplace_back(value, 1);
  }
  return of_counted(std::move(counted));
}

Distribution Distribution::of_counted(std::vector<std::pair<double, std::uint64_t>> values) {
  Distribution result;
  std::ranges::sort(values);
  double sum = 0;
  for (const auto& [value, count] : values) {
    result.count += count;
    sum += value * static_cast<double>(count);
  }
  if (result.count == 0) {
    return result;
  }
  result.mean = sum / static_cast<double>(result.count);
  result.min = values.front().first;
  result.max = values.back().first;
  double squares = 0;
  for (const auto& [value, count] : values) {
    squares += (value - result.mean) * (value - result.mean) * static_cast<double>(count);
  }
  result.std = std::sqrt(squares / static_cast<double>(result.count));

  const std::array<std::pair<double, double*>, 5> percentiles = {
      {{50, &result.median}, {75, &result.p75}, {90, &result.p90}, {95, &result.p95}, {99, &result.p99}}};
  std::size_t place = 0;
  std::uint64_t up_to = values.front().second;  // values at this place and before
  for (const auto& [percent, out] : percentiles) {
    const auto rank = static_cast<std::uint64_t>(std::llround(static_cast<double>(result.count - 1) * percent / 100.0));
    while (up_to <= rank) {
      up_to += values[++place].second;
    }
    *out = values[place].first;
  }
  return result;
}

}  // namespace cairn::sim
