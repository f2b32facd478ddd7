// Scale: maps the values of an axis to positions in a drawing, and chooses the ticks.
//
// A linear axis of positive values starts at 0 and ends at a round value; a logarithmic one ends where the data end. An
// axis whose values are all equal still has a length.
//
// Thread safety: a plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cairn/page/page.h"

namespace cairn::page {

// The range of the finite values on an axis.
class Extent {
 public:
  // Ignores values that the axis cannot show.
  void add(double value, const Axis& axis);
  [[nodiscard]] bool empty() const { return !ends_; }
  [[nodiscard]] double least() const { return ends_->first; }
  [[nodiscard]] double largest() const { return ends_->second; }

 private:
  std::optional<std::pair<double, double>> ends_;
};

class Scale {
 public:
  // The axis runs from `begin` to `end` in the drawing and has about `count` ticks. Requires: `extent` is not empty.
  Scale(const Axis& axis, const Extent& extent, double begin, double end, int count);

  // The position of a value; std::nullopt if the axis cannot show it. A value beyond an end is put at the end.
  [[nodiscard]] std::optional<double> at(double value) const;
  [[nodiscard]] const std::vector<Tick>& ticks() const { return ticks_; }
  // The label of the axis with its unit: "Time (min)".
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

// The step that divides `length` into about `count` parts: 1, 2 or 5 times a power of ten.
[[nodiscard]] double round_step(double length, int count);

}  // namespace cairn::page
