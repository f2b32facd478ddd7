// Which differences between two runs of the same requests matter.
//
// Does:     looks at the requests that both answered, in 20 groups of neighbours. A mean differs if the differences of
//           the groups agree on it (their mean is beyond the 95 % interval of a t distribution); a difference matters
//           if it also is 1 % or more. Everything else may be chance, or too small for anyone to care.
// Threads:  pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/sim/report.h"

namespace cairn::cli {

// One measure in two runs, over the requests that both answered.
struct Difference {
  std::string_view measure;  // "mean TTFT"
  std::string_view unit;     // "ms", or nothing
  double base = 0;
  double other = 0;
  bool matters = false;

  // 0.05: five percent more than the base.
  [[nodiscard]] double relative() const;
};

// A run against the first one.
struct Comparison {
  std::string base;
  std::string other;
  std::uint64_t requests = 0;  // that both answered
  std::vector<Difference> differences;
};

[[nodiscard]] std::vector<Difference> compare_runs(const sim::Report& base, const sim::Report& other);
[[nodiscard]] std::uint64_t answered_by_both(const sim::Report& base, const sim::Report& other);

}  // namespace cairn::cli
