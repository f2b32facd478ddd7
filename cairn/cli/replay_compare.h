// compare_runs(): finds the significant differences between two runs of the same requests.
//
// The requests that both runs answered are split into 20 groups of neighbours. A difference of means matters if it is outside
// the 95 % interval of a t distribution over the groups, and is 1 % or more.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/sim/report.h"

namespace cairn::cli {

// One measure of two runs, over the requests that both answered.
struct Difference {
  std::string_view measure;  // "mean TTFT"
  std::string_view unit;     // "ms", or empty
  double base = 0;
  double other = 0;
  bool matters = false;

  // 0.05: five percent more than the base.
  [[nodiscard]] double relative() const;
};

// A run compared with the first one.
struct Comparison {
  std::string base;
  std::string other;
  std::uint64_t requests = 0;  // that both answered
  std::vector<Difference> differences;
};

[[nodiscard]] std::vector<Difference> compare_runs(const sim::Report& base, const sim::Report& other);
[[nodiscard]] std::uint64_t answered_by_both(const sim::Report& base, const sim::Report& other);

}  // namespace cairn::cli
