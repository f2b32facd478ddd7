#include "cairn/cli/replay_compare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace cairn::cli {
namespace {

using sim::RequestFigures;

constexpr std::size_t kGroups = 20;
constexpr double kT95 = 2.093;  // two-sided, of the t distribution with 19 degrees of freedom
constexpr double kLeastShare = 0.01;

struct Pair {
  const RequestFigures* base;
  const RequestFigures* other;
};

double ms(Duration duration) { return static_cast<double>(duration.count()) / 1e6; }

// The sum of `value` over all requests, divided by the sum of `weight`.
struct Measure {
  std::string_view name;
  std::string_view unit;
  double (*value)(const RequestFigures&);
  double (*weight)(const RequestFigures&);
};

double one(const RequestFigures& /*request*/) { return 1; }
double input(const RequestFigures& request) { return static_cast<double>(request.input_tokens); }
double reused(const RequestFigures& request) { return static_cast<double>(request.reused_tokens); }
double ttft(const RequestFigures& request) { return ms(request.first_token - request.arrival); }
double e2e(const RequestFigures& request) { return ms(request.last_token - request.arrival); }
double queue(const RequestFigures& request) { return ms(*request.admitted - request.arrival); }
double decode_ms(const RequestFigures& request) { return ms(request.last_token - request.first_token); }
double gaps(const RequestFigures& request) { return static_cast<double>(request.output_tokens - 1); }

constexpr Measure kMeasures[] = {
    {"hit ratio", "", &reused, &input}, {"mean TTFT", "ms", &ttft, &one},        {"mean ITL", "ms", &decode_ms, &gaps},
    {"mean E2E", "ms", &e2e, &one},     {"mean queue time", "ms", &queue, &one},
};

struct Means {
  double base = 0;
  double other = 0;
};

Means means_of(std::span<const Pair> pairs, const Measure& measure) {
  Means sums;
  double base_weight = 0;
  double other_weight = 0;
  for (const Pair& pair : pairs) {
    sums.base += measure.value(*pair.base);
    sums.other += measure.value(*pair.other);
    base_weight += measure.weight(*pair.base);
    other_weight += measure.weight(*pair.other);
  }
  return {base_weight == 0 ? 0 : sums.base / base_weight, other_weight == 0 ? 0 : sums.other / other_weight};
}

// Whether the difference is statistically significant.
bool groups_agree(std::span<const Pair> pairs, const Measure& measure) {
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < kGroups; ++i) {
    const std::size_t begin = pairs.size() * i / kGroups;
    const Means means = means_of(pairs.subspan(begin, pairs.size() * (i + 1) / kGroups - begin), measure);
    sum += means.other - means.base;
    squares += (means.other - means.base) * (means.other - means.base);
  }
  const double mean = sum / kGroups;
  const double variance = std::max(0.0, (squares - sum * mean) / (kGroups - 1));
  return std::abs(mean) > kT95 * std::sqrt(variance / kGroups);
}

std::vector<Pair> pairs_of(const sim::Report& base, const sim::Report& other) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < std::min(base.requests.size(), other.requests.size()); ++i) {
    if (base.requests[i].output_tokens > 0 && other.requests[i].output_tokens > 0) {
      pairs.push_back({&base.requests[i], &other.requests[i]});
    }
  }
  return pairs;
}

}  // namespace

double Difference::relative() const { return base == 0 ? (other == 0 ? 0 : 1) : (other - base) / base; }

std::vector<Difference> compare_runs(const sim::Report& base, const sim::Report& other) {
  const std::vector<Pair> pairs = pairs_of(base, other);
  std::vector<Difference> differences;
  for (const Measure& measure : kMeasures) {
    const Means means = means_of(pairs, measure);
    Difference difference{measure.name, measure.unit, means.base, means.other};
    difference.matters =
        pairs.size() >= kGroups && std::abs(difference.relative()) >= kLeastShare && groups_agree(pairs, measure);
    differences.push_back(difference);
  }
  return differences;
}

std::uint64_t answered_by_both(const sim::Report& base, const sim::Report& other) {
  return pairs_of(base, other).size();
}

}  // namespace cairn::cli
