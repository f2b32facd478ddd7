// Scale: where the values of an axis lie in a drawing, and which of them are named beside it.
//
// Does:     linear axes of values that are all positive begin at 0, and end at a round value; logarithmic ones end
//           where the data end. An axis whose values are all the same still has a length.
// Threads:  a plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cairn/page/page.h"

namespace cairn::page {

// The finite values on an axis: none yet, or from the least to the largest.
class Extent {
 public:
  // Passes over what the axis cannot show.
  void add(double value, const Axis& axis);
  [[nodiscard]] bool empty() const { return !ends_; }
  [[nodiscard]] double least() const { return ends_->first; }
  [[nodiscard]] double largest() const { return ends_->second; }

 private:
  std::optional<std::pair<double, double>> ends_;
};

class Scale {
 public:
  // `axis` from `begin` to `end` in the drawing, with about `count` ticks. Requires: an extent that is not empty.
  Scale(const Axis& axis, const Extent& extent, double begin, double end, int count);

  // Where a value lies; none where the axis cannot show it. What is beyond an end lies at the end.
  [[nodiscard]] std::optional<double> at(double value) const;
  [[nodiscard]] const std::vector<Tick>& ticks() const { return ticks_; }
  // Of the axis, with its unit: "Time (min)".
  [[nodiscard]] const std::string& label() const { return label_; }

 private:
  void settle_linear(const Axis& axis, const Extent& extent, int count);
  void settle_log(const Axis& axis, const Extent& extent);

  bool log_ = false;
  double from_ = 0;
  double to_ = 1;
  double begin_;
  double end_;
  std::vector<Tick> ticks_;
  std::string label_;
};

// 1, 2 or 5 times a power of ten: the step that divides `length` into about `count`.
[[nodiscard]] double round_step(double length, int count);

}  // namespace cairn::page
