// CostModel: how long a simulated engine computes: prefill depends on the tokens to compute, decode on how much of the
// cache is in use.
//
// polynomial() was fitted to one engine on one machine:
//   prefill ms = 4.209989e-7 T^2 + 1.518344e-2 T + 16.50142, 0 for no tokens
//   decode ms  = -25.74 p^2 + 54.01 p + 5.74, at least 1; p is the fraction of the cache in use
// parse() reads measured points as CSV, one a line:
//   prefill,TOKENS,MS    a pass that computes TOKENS tokens
//   decode,TOKENS,MS     one step with TOKENS tokens in the cache
// Points are joined by straight lines, which continue beyond the first and the last point; never below 0. Empty lines,
// lines that begin with # and a first line of titles are skipped. Each kind needs at least two points. with_speedup()
// is the same engine, `factor` times as fast.
//
// Errors:     parse() fails on any other line, on two points at the same TOKENS and on too few points; the message
//             names the line. with_speedup() fails unless the factor is above 0.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::sim {

// How much of a cache is in use.
struct CacheUse {
  std::uint64_t blocks = 0;
  std::uint64_t capacity = 0;
  std::uint32_t block_size = 0;
};

class CostModel {
 public:
  [[nodiscard]] static CostModel polynomial() { return {}; }
  [[nodiscard]] static Result<CostModel> parse(std::string_view csv);
  [[nodiscard]] Result<CostModel> with_speedup(double factor) const;

  // Rounded to the nearest nanosecond.
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

  // Sorted by tokens; empty for the polynomial.
  std::vector<Point> prefill_points_;
  std::vector<Point> decode_points_;
  double speedup_ = 1;
};

}  // namespace cairn::sim
