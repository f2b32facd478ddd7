// CostModel: how long an engine computes. Prefill by the tokens it computes, decode by how much of the cache is in use.
//
// Does:     polynomial(), fitted to one engine on one machine:
//             prefill ms = 4.209989e-7 T^2 + 1.518344e-2 T + 16.50142, 0 for no tokens
//             decode ms  = -25.74 p^2 + 54.01 p + 5.74, at least 1; p is the share of the cache in use
//           parse(), measured points as CSV, a line each:
//             prefill,TOKENS,MS    so many tokens computed in one pass
//             decode,TOKENS,MS     one step with so many tokens in the cache
//           Between points a straight line, beyond them the nearest one goes on; never below 0. Empty lines, lines that
//           begin with # and a first line of titles are passed over. Two points of each kind at least.
//           with_speedup(): the same engine, that many times as fast.
// Threads:  a plain value; what it answers depends on nothing else.
// Fails:    parse(): a line that is none of these, a place given twice, too few points; says which line and why.
//           with_speedup(): a factor that is not above 0.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::sim {

// What is in a cache at one moment.
struct CacheUse {
  std::uint64_t blocks = 0;  // in use
  std::uint64_t capacity = 0;
  std::uint32_t block_size = 0;
};

class CostModel {
 public:
  [[nodiscard]] static CostModel polynomial() { return {}; }
  [[nodiscard]] static Result<CostModel> parse(std::string_view csv);
  [[nodiscard]] Result<CostModel> with_speedup(double factor) const;

  // To the nearest nanosecond.
  [[nodiscard]] Duration prefill(std::uint64_t tokens) const;
  [[nodiscard]] Duration decode(const CacheUse& use) const;

 private:
  struct Point {
    double tokens;
    double ms;
  };

  CostModel() = default;
  [[nodiscard]] static Status add_line(std::string_view line, CostModel& model);
  [[nodiscard]] static double on_line(const std::vector<Point>& points, double tokens);
  [[nodiscard]] Duration scaled(double ms) const;

  // Sorted; empty: the polynomial.
  std::vector<Point> prefill_points_;
  std::vector<Point> decode_points_;
  double speedup_ = 1;
};

}  // namespace cairn::sim
